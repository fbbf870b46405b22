// Buffers and arenas: alignment, accounting, stale views, the plan's limit, the debug fill.
#include "core/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "expect_error.h"
#include "red_zone.h"

namespace shiftron {
namespace {

using testing::red_zone;

TEST(Buffer, IsZeroAlignedAndCounted) {
  Ledger ledger;
  {
    Buffer buffer(DeviceKind::cpu, 1000, ledger, "parameters");
    EXPECT_EQ(buffer.bytes(), 1024);
    EXPECT_EQ(ledger.memory().at("parameters"), 1024);
    const Tensor x = buffer.tensor(0, DType::float32, {256});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw()) % kAlignment, 0u);
    for (int64_t i = 0; i < 256; ++i) ASSERT_EQ(x.data<float>()[i], 0);
    EXPECT_THROW((void)buffer.tensor(512, DType::float32, {129}), Error);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(ledger.memory_total(), 1024);
    Buffer huge(DeviceKind::cpu, (int64_t{2} << 20) + 1, ledger, "parameters");
    EXPECT_EQ(huge.tensor(int64_t{2} << 20, DType::uint8, {256}).data<uint8_t>()[255], 0);
    moved = Buffer();
    EXPECT_EQ(ledger.memory_total(), huge.bytes());
  }
  EXPECT_EQ(ledger.memory_total(), 0);
}

TEST(Buffer, OnMetaOnlyCounts) {
  Ledger ledger;
  const Buffer buffer(DeviceKind::meta, int64_t{1} << 50, ledger, "parameters");
  EXPECT_EQ(ledger.memory_total(), int64_t{1} << 50);
  EXPECT_EQ(buffer.tensor(256, DType::float32, {64}).raw(), nullptr);
}

TEST(Buffer, SaysHowMuchIsMissingAndWhatNeedsLess) {
  Ledger ledger;
  const Buffer there(DeviceKind::cpu, 512, ledger, "parameters");
  const int64_t bytes = int64_t{1} << 60;  // no address space holds it
  EXPECT_ERROR(Buffer(DeviceKind::cpu, bytes, ledger, "activations"), ExitCode::bad_input,
               "1152921504606846976 bytes are needed for activations, and this rank already uses 512 bytes; lower "
               "train.micro_batch");
  EXPECT_ERROR(Buffer(DeviceKind::cpu, bytes, ledger, "optimizer"), ExitCode::bad_input, "raise parallel.tp");
  EXPECT_ERROR(Buffer(DeviceKind::cpu, bytes, ledger, "cache"), ExitCode::bad_input, "generate --tokens");
  EXPECT_EQ(ledger.memory_total(), 512);
}

TEST(Arena, OnMetaStandsForEqualOnes) {
  Ledger ledger;
  Stream meta_stream{.device = DeviceKind::meta, .ledger = &ledger};
  Arena arena(meta_stream, "activations", {}, "activations", 3);
  (void)arena.allocate(DType::uint8, {256});
  arena.release();
  (void)arena.allocate(DType::uint8, {512});
  EXPECT_EQ(arena.peak(), 512 + red_zone());
  EXPECT_EQ(ledger.memory_total(), 3 * (512 + red_zone()));
}

TEST(Arena, RefusesMoreThanItsPlan) {
  Ledger ledger;
  Stream cpu_stream{.ledger = &ledger};
  const int64_t bytes = 512 + 2 * red_zone();
  Arena arena(cpu_stream, "scratch", {{"scratch", bytes}}, "scratch");
  EXPECT_EQ(ledger.memory_total(), bytes);
  (void)arena.allocate(DType::float32, {64});
  (void)arena.allocate(DType::uint8, {1});  // 1 byte takes a whole alignment
  EXPECT_EQ(arena.used(), bytes);
  EXPECT_THROW((void)arena.allocate(DType::uint8, {1}), Error);
  EXPECT_THROW(Arena(cpu_stream, "other", {{"scratch", 512}}, "scratch"), Error);
}

TEST(Arena, OnMetaMeasuresWhatTheCpuNeeds) {
  Ledger ledger;
  Stream meta_stream{.device = DeviceKind::meta, .ledger = &ledger};
  Stream cpu_stream{.ledger = &ledger};
  Arena meta(meta_stream, "activations", {}, "activations");
  const auto use = [](Arena& arena) {
    (void)arena.allocate(DType::bfloat16, {3, 5});
    {
      ArenaScope scope(arena);
      (void)arena.allocate(DType::float32, {1000});
    }
    (void)arena.allocate(DType::float64, {2});
  };
  use(meta);
  EXPECT_EQ(meta.peak(), 256 + 4096 + 2 * red_zone());
  EXPECT_EQ(meta.used(), 512 + 2 * red_zone());
  EXPECT_EQ(ledger.memory().at("activations"), meta.peak());
  Arena cpu(cpu_stream, "activations", {{"activations", meta.peak()}}, "activations");
  use(cpu);
  EXPECT_EQ(cpu.peak(), meta.peak());
}

TEST(Arena, ReleaseMakesViewsStale) {
  Ledger ledger;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::meta}) {
    Stream stream{.device = device, .ledger = &ledger};
    Arena arena(stream, "a", {{"a", 1536}}, "a");
    const Tensor x = arena.allocate(DType::float32, {4, 6});
    const Tensor part = x.rows(1, 2).split_last(2, 3);
    const Tensor other = x.view({24});
    EXPECT_NO_THROW(part.check_alive());
    arena.release();
    EXPECT_THROW(x.check_alive(), Error);
    EXPECT_THROW(part.check_alive(), Error);
    EXPECT_THROW(other.check_alive(), Error);
    EXPECT_NO_THROW(arena.allocate(DType::float32, {4}).check_alive());
    EXPECT_EQ(arena.used(), 256 + red_zone());
  }
}

TEST(ArenaScope, GivesBackWhatCameAfterItsStart) {
  Ledger ledger;
  Stream cpu_stream{.ledger = &ledger};
  Arena arena(cpu_stream, "a", {{"a", 1536}}, "a");
  const Tensor kept = arena.allocate(DType::float32, {2});
  kept.data<float>()[0] = 7;
  const void* inner = nullptr;
  {
    ArenaScope scope(arena);
    const Tensor x = arena.allocate(DType::float32, {2});
    inner = x.raw();
    x.data<float>()[1] = 5;
  }
  EXPECT_EQ(arena.used(), 256 + red_zone());
  EXPECT_NO_THROW(kept.check_alive());
  EXPECT_EQ(kept.data<float>()[0], 7);
  const Tensor again = arena.allocate(DType::float32, {2});
  EXPECT_EQ(again.raw(), inner);
#ifndef NDEBUG
  EXPECT_TRUE(red_zone() > 0 || std::isnan(again.data<float>()[1]));
#endif
}

}  // namespace
}  // namespace shiftron
