// Any layout loads what any layout saved, bit for bit.
#include <atomic>
#include <map>
#include <set>

#include "checkpoint/digest.h"
#include "checkpoint/fixture.h"
#include "checkpoint/step_files.h"
#include "checkpoint/verify.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;

const std::vector<CheckpointLayout> kReshardLayouts = {
    {{}},
    {{.tp = 2}},
    {{.tp = 3}},
    {{.tp = 4}},
    {{.dp = 2}},
    {{.dp = 5}},
    {{.pp = 2}},
    {{.pp = 2}, {4, 1}},
    {{.pp = 3}, {1, 3, 1}},
    {{.pp = 5}},
    {{.cp = 2}},
    {{.tp = 2, .dp = 2}},
    {{.tp = 3, .pp = 2}, {2, 3}},
    {{.tp = 2, .cp = 2, .pp = 2}},
    {{.dp = 2, .pp = 3}},
    {{.tp = 4, .dp = 2, .pp = 2}, {1, 4}},
};

const std::vector<CheckpointLayout> kDividedLayouts = {
    {{.dp = 2}},
    {{.dp = 2}, {}, {.divided = true}},
    {{.dp = 5}, {}, {.divided = true, .bucket_elements = 1}},
    {{.tp = 2, .dp = 2}, {}, {.divided = true, .bucket_elements = 300}},
    {{.tp = 3, .dp = 3}},
    {{.dp = 2, .pp = 3}, {1, 3, 1}, {.divided = true, .bucket_elements = 1000}},
    {{.cp = 2, .dp = 2}, {}, {.divided = true}},
    {{.tp = 4, .dp = 3, .pp = 2}, {1, 4}, {.divided = true, .bucket_elements = 100}},
};

// Every pair; what each layout has loaded is saved again and compared with the first save.
void load_all_pairs(const FakeModel& model, const std::vector<CheckpointLayout>& cases = kReshardLayouts) {
  const TemporaryDirectory directory;
  const uint64_t salt = 7;
  const auto place = [&](size_t i) { return directory.path() + "/" + std::to_string(i); };
  for (size_t i = 0; i < cases.size(); ++i) {
    const SaveResult result = save_state(place(i), under(model, cases[i]), cases[i].layout, 3, salt);
    ASSERT_TRUE(result.saved) << result.reason;
    EXPECT_TRUE(diff_steps(place(0) + "/step-00000003", result.directory).equal()) << "layout " << i;
  }
  EXPECT_THAT(verify_step(place(cases.size() - 1) + "/step-00000003"), ::testing::IsEmpty());
  for (size_t i = 0; i < cases.size(); ++i) {
    for (size_t j = 0; j < cases.size(); ++j) {
      int64_t wrong = 0;
      EXPECT_EQ(load_state(
                    place(i), under(model, cases[j]), cases[j].layout, [&](int64_t) { return salt; }, &wrong),
                3);
      EXPECT_EQ(wrong, 0) << "saved under " << i << ", loaded under " << j;
    }
  }
}

TEST(Reshard, AllPairsUntied) {
  load_all_pairs({});
}

TEST(Reshard, AllPairsTiedPreciseGroupedHeads) {
  load_all_pairs({.kv_heads = 2, .tied = true, .precise = true});
}

TEST(Reshard, AllPairsOfMastersInTwoHalves) {
  load_all_pairs({.kv_heads = 2, .halves = true});
}

TEST(Reshard, PartsOfDataParallelRanks) {
  load_all_pairs({.kv_heads = 2, .tied = true}, kDividedLayouts);
}

TEST(Reshard, PreciseParts) {
  load_all_pairs({.kv_heads = 2, .precise = true}, kDividedLayouts);
}

TEST(Reshard, PartsOfMastersInTwoHalves) {
  load_all_pairs({.kv_heads = 2, .tied = true, .halves = true}, kDividedLayouts);
}

// What others keep of the masters comes from them, not from the disk.
TEST(Reshard, OfDividedMastersEachRankReadsItsPart) {
  const CheckpointLayout divided{{.dp = 4}, {}, {.divided = true, .bucket_elements = 1000}};
  for (const bool halves : {false, true}) {
    const TemporaryDirectory directory;
    const FakeModel model = under({.kv_heads = 2, .halves = halves}, divided);
    const SaveResult saved = save_state(directory.path(), model, divided.layout, 3, 7);
    ASSERT_TRUE(saved.saved) << saved.reason;
    std::atomic<uint64_t> bytes = 0;
    run_thread_ranks(divided.layout.ranks(), [&](HostCommunicator& world) {
      Ledger ledger;
      Log log(world.rank());
      ParameterSet set = make_set(model, divided.layout, world.rank(), ledger);
      RestoreOptions options;
      options.at_read = [&](const ManifestFile&, uint64_t, uint64_t some) { bytes += some; };
      options.gather = [&] { gather_weights(model, set, world, ledger); };
      EXPECT_TRUE(load_checkpoint(directory.path(), {}, set, world, log, options));
      EXPECT_EQ(count_wrong(model, set, 7), 0);
      options = {};  // each all of them
      fill(model, set, 8);
      EXPECT_TRUE(load_checkpoint(directory.path(), {}, set, world, log, options));
      EXPECT_EQ(count_wrong(model, set, 7), 0);
    });
    uint64_t stored = 0;
    for (const ManifestBox& box : read_manifest(saved.directory).boxes) stored += box.bytes;
    EXPECT_EQ(bytes, stored);
  }
}

// Rows of what is split by columns cross the boxes of all ranks, more of them than blocks are kept else.
TEST(Reshard, RowsReadEachBlockOfManyRanksOnce) {
  constexpr int64_t kRows = 256, kColumns = 160, kOfRank = 2, kAtOnce = 24;
  const ManifestTensor tensor{TensorGroup::parameters, "down.weight", {kRows, kColumns}, DType::float32};
  const auto value = [](int64_t row, int64_t column) { return static_cast<float>(row * kColumns + column); };
  StepFile file{.name = rank_file_name(0), .boxes = {}};
  for (int64_t column = 0; column < kColumns; column += kOfRank) {
    file.boxes.push_back({tensor, {.offset = {0, column}, .extent = {kRows, kOfRank}}});
  }
  const TemporaryDirectory directory;
  const std::string step = directory.path() + "/" + step_name(1), temporary = step + ".tmp";
  fs::create_directory(temporary);
  const auto rows_of = [&](size_t index, int64_t first, int64_t count, std::vector<std::byte>& room) -> const void* {
    room.resize(static_cast<size_t>(count * kOfRank) * sizeof(float));
    auto* to = reinterpret_cast<float*>(room.data());
    for (int64_t i = 0; i < count * kOfRank; ++i) {
      to[i] = value(first + i / kOfRank, file.boxes[index].box.offset[1] + i % kOfRank);
    }
    return room.data();
  };
  const PassedPoint nothing = [](const char*) {};
  const uint64_t block_bytes = small_blocks().block_bytes;
  commit_step(temporary, step, write_file(temporary, file, {.block_bytes = block_bytes}, rows_of, nothing),
              content_at(1), {}, nothing);

  StepReader reader(step, check_step(step));
  std::map<uint64_t, int> reads;  // of each block, by its place
  reader.visit_reads([&](const ManifestFile&, uint64_t offset, uint64_t) { ++reads[offset]; });
  for_each_rows(whole_box(tensor.shape), kAtOnce * kColumns, [&](const Box& rows, int64_t first) {
    std::vector<float> values(static_cast<size_t>(rows.extent.count()));
    reader.read(0, rows, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], value(0, first + static_cast<int64_t>(i)));
    }
  });
  EXPECT_EQ(reads.size(), static_cast<size_t>(kRows * kColumns) * sizeof(float) / block_bytes);
  for (const auto& [offset, times] : reads) EXPECT_EQ(times, 1) << "at byte " << offset;
}

// Files do not say how masters lie in memory: the same bytes, and either reads the other's.
TEST(Reshard, MastersInTwoHalvesAreSavedAsWholeOnes) {
  const TemporaryDirectory directory;
  const FakeModel whole{.kv_heads = 2}, halves{.kv_heads = 2, .halves = true};
  const ParallelLayout layout{.tp = 2, .pp = 2};
  const SaveResult a = save_state(directory.path() + "/whole", whole, layout, 3, 7);
  const SaveResult b = save_state(directory.path() + "/halves", halves, layout, 3, 7);
  for (const std::string& name : names_in(a.directory)) {
    EXPECT_EQ(read_file(a.directory + "/" + name), read_file(b.directory + "/" + name)) << name;
  }
  int64_t wrong = 0;
  const auto salt = [](int64_t) { return uint64_t{7}; };
  EXPECT_EQ(load_state(directory.path() + "/whole", halves, {.tp = 3}, salt, &wrong), 3);
  EXPECT_EQ(load_state(directory.path() + "/halves", whole, {.tp = 3}, salt, &wrong), 3);
  EXPECT_EQ(wrong, 0);
}

// A → B → A through files written by B.
TEST(Reshard, ThroughASecondLayoutAndBack) {
  const TemporaryDirectory directory;
  const FakeModel model{.kv_heads = 4};
  const ParallelLayout a{.tp = 2, .pp = 2}, b{.tp = 3, .dp = 2};
  ASSERT_TRUE(save_state(directory.path() + "/a", model, a, 1, 9).saved);
  run_thread_ranks(b.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    ParameterSet set = make_set(model, b, world.rank(), ledger);
    const auto content = load_checkpoint(directory.path() + "/a", {}, set, world, log);
    EXPECT_TRUE(save_checkpoint(directory.path() + "/b", *content, set, world, {}, log, small_blocks()).saved);
  });
  int64_t wrong = 0;
  EXPECT_EQ(load_state(
                directory.path() + "/b", model, a, [](int64_t) { return 9; }, &wrong),
            1);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(diff_steps(directory.path() + "/a/step-00000001", directory.path() + "/b/step-00000001").equal());
}

TEST(Reshard, OneRankHoldsEveryTensorWhole) {
  const TemporaryDirectory directory;
  const SaveResult result = save_state(directory.path(), {}, {}, 500, 1);
  ASSERT_TRUE(result.saved) << result.reason;
  EXPECT_EQ(result.directory, directory.path() + "/step-00000500");
  EXPECT_THAT(names_in(result.directory), ::testing::ElementsAre("manifest.json", "rank-00000.h5", "tokenizer.model"));
  const Manifest manifest = check_step(result.directory);
  EXPECT_EQ(manifest.boxes.size(), manifest.tensors.size());
  for (const ManifestBox& box : manifest.boxes) {
    EXPECT_EQ(manifest.dataset(box), manifest.tensors[static_cast<size_t>(box.tensor)].path());
  }
}

TEST(Reshard, CopiesShareTheWorkAndEachBoxIsWrittenOnce) {
  const TemporaryDirectory directory;
  const SaveResult result = save_state(directory.path(), {.tied = true}, {.tp = 2, .dp = 2, .pp = 2}, 1, 1);
  ASSERT_TRUE(result.saved) << result.reason;
  const Manifest manifest = check_step(result.directory);
  EXPECT_EQ(manifest.files.size(), 9u);  // eight ranks and the tokenizer
  std::set<std::pair<int, std::string>> seen;
  for (const ManifestBox& box : manifest.boxes) EXPECT_TRUE(seen.insert({box.tensor, box.box.text()}).second);
  EXPECT_EQ(manifest.dataset(manifest.boxes[0]).find("parameters/"), 0u);
  for (const ManifestBox& box : manifest.boxes) {
    const bool table = manifest.tensors[static_cast<size_t>(box.tensor)].name == "embedding.weight";
    if (table) {
      EXPECT_LT(manifest.files[static_cast<size_t>(box.file)].name, "rank-00004.h5") << "not the first stage";
    }
  }
}

}  // namespace
}  // namespace shiftron
