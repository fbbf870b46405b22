// What every communicator must do: checks over a world, for threads and MPI alike; each throws Error where it fails.
#pragma once

#include <numeric>

#include "parallel/conformance_numbers.h"

namespace shiftron::conformance {

// One rank's ledger and stream.
struct Rank {
  explicit Rank(DeviceKind device = DeviceKind::cpu) {
    stream.device = device;
    stream.ledger = &ledger;
  }
  Ledger ledger;
  Stream stream;
};

template <typename T>
std::string label(const RankGroup& group, const char* operation, int64_t count) {
  return detail::concatenate(operation, " ", name_of(DTypeOf<T>::value), " x ", count, ", rank ", group.rank(), " of ",
                             group.size());
}

template <typename T>
void check_reductions(HostCommunicator& group, Stream& stream, int64_t count) {
  const int size = group.size();
  for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
    if (std::is_same_v<T, uint8_t> && reduction == Reduction::sum) continue;
    std::vector<T> values = numbers<T>(group.rank(), count);
    group.all_reduce(stream, InOut(tensor_of(values)), reduction).wait(stream);
    expect_same(values, reduced<T>(size, count, reduction), label<T>(group, "all_reduce", count));
  }
  if constexpr (!std::is_same_v<T, uint8_t>) {
    std::vector<T> whole = numbers<T>(group.rank(), count * size);
    std::vector<T> piece(static_cast<size_t>(count));
    group.reduce_scatter(stream, tensor_of(whole), tensor_of(piece)).wait(stream);
    const std::vector<T> all = reduced<T>(size, count * size, Reduction::sum);
    const auto begin = all.begin() + group.rank() * count;
    expect_same(piece, std::vector<T>(begin, begin + count), label<T>(group, "reduce_scatter", count));
    expect_same(whole, numbers<T>(group.rank(), count * size), "input of reduce_scatter");
    const std::vector<T> backwards = reduced<T>(size, count * size, Reduction::sum, true);
    if (std::is_floating_point_v<T> && size >= 3 && count >= 1000) {
      CHECK(std::memcmp(all.data(), backwards.data(), all.size() * sizeof(T)) != 0, "the order does not show");
    }
  }
}

template <typename T>
void check_moves(HostCommunicator& group, Stream& stream, int64_t count) {
  const int size = group.size();
  const int rank = group.rank();
  std::vector<T> piece = numbers<T>(rank, count);
  std::vector<T> whole(static_cast<size_t>(count * size));
  std::vector<T> expected;
  for (int from = 0; from < size; ++from) {
    const std::vector<T> theirs = numbers<T>(from, count);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  group.all_gather(stream, tensor_of(piece), tensor_of(whole)).wait(stream);
  expect_same(whole, expected, label<T>(group, "all_gather", count));

  std::vector<T> in_place(whole.size());
  std::copy(piece.begin(), piece.end(), in_place.begin() + rank * count);
  const Tensor all = tensor_of(in_place);
  group.all_gather(stream, all.rows(rank * count, count), all).wait(stream);
  expect_same(in_place, expected, label<T>(group, "all_gather in place", count));

  std::vector<T> parts;  // part r is for rank r: numbers(rank * size + r)
  expected.clear();
  for (int other = 0; other < size; ++other) {
    const std::vector<T> mine = numbers<T>(rank * size + other, count);
    const std::vector<T> theirs = numbers<T>(other * size + rank, count);
    parts.insert(parts.end(), mine.begin(), mine.end());
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  group.all_to_all(stream, tensor_of(parts), tensor_of(whole)).wait(stream);
  expect_same(whole, expected, label<T>(group, "all_to_all", count));

  for (int root = 0; root < size; ++root) {
    std::vector<T> values = numbers<T>(rank == root ? 77 + root : 0, count);
    group.broadcast(stream, InOut(tensor_of(values)), root).wait(stream);
    expect_same(values, numbers<T>(77 + root, count), label<T>(group, "broadcast", count));
  }
  if (size > 1) {  // everyone sends first: around the ring
    std::vector<T> values = numbers<T>(rank, count);
    group.send(stream, tensor_of(values), (rank + 1) % size).wait(stream);
    values.assign(values.size(), T{});  // may be written again
    std::vector<T> received(static_cast<size_t>(count));
    group.recv(stream, tensor_of(received), (rank + size - 1) % size).wait(stream);
    expect_same(received, numbers<T>((rank + size - 1) % size, count), label<T>(group, "recv", count));
  }
}

template <typename T>
void check_dtype(HostCommunicator& group, Stream& stream) {
  for (const int64_t count : {0, 1, 7, 1000, 100003}) {
    check_reductions<T>(group, stream, count);
    check_moves<T>(group, stream, count);
  }
}

inline void check_operations(HostCommunicator& group) {
  Rank rank;
  check_dtype<double>(group, rank.stream);
  check_dtype<float>(group, rank.stream);
  check_dtype<bfloat16>(group, rank.stream);
  check_dtype<int64_t>(group, rank.stream);
  check_dtype<int32_t>(group, rank.stream);
  check_dtype<uint8_t>(group, rank.stream);
  group.barrier();
  CHECK(group.size() > 1 || rank.ledger.traffic().empty(), "a group of one has no traffic");
}

// Large integers, infinities, NaN, negative zero, ties of bfloat16.
inline void check_special_values(HostCommunicator& group) {
  Rank rank;
  const int size = group.size();
  const int last = size - 1;
  const int64_t share = (int64_t{1} << 62) / size;
  std::vector<int64_t> large = {share + group.rank(), -1};
  group.all_reduce(rank.stream, InOut(tensor_of(large)), Reduction::sum).wait(rank.stream);
  CHECK(large[0] == share * size + int64_t{last} * size / 2 && large[1] == -size, "large integers: ", large[0]);
  const float infinity = INFINITY;
  std::vector<float> values = {group.rank() == last ? infinity : 1.0f, group.rank() == 0 ? NAN : 1.0f, -0.0f,
                               group.rank() == last ? NAN : infinity};
  std::vector<float> maxima = values;
  group.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
  group.all_reduce(rank.stream, InOut(tensor_of(maxima)), Reduction::max).wait(rank.stream);
  for (const std::vector<float>& found : {values, maxima}) {
    CHECK(found[0] == infinity && std::isnan(found[1]) && std::signbit(found[2]) && std::isnan(found[3]),
          "special values: ", found[0], " ", found[1], " ", found[2], " ", found[3]);
  }
  if (size < 2) return;
  // 1 + 1/256 and 1 + 3/256 are halfway between two bfloat16 and go to the even ones; 1 + 1.5/256 goes up.
  const auto part = [&](double first, double second) {
    return nearest_bfloat16(group.rank() == 0 ? first : group.rank() == 1 ? second : 0);
  };
  std::vector<bfloat16> ties = {part(1, 0x1p-8), part(1 + 0x1p-7, 0x1p-8), part(1, 0x1.8p-8)};
  group.all_reduce(rank.stream, InOut(tensor_of(ties)), Reduction::sum).wait(rank.stream);
  CHECK(widen(ties[0]) == 1 && widen(ties[1]) == 1 + 0x1p-6f && widen(ties[2]) == 1 + 0x1p-7f, "ties of bfloat16: ",
        widen(ties[0]), " ", widen(ties[1]), " ", widen(ties[2]));
  if (size < 3) return;
  std::vector<bfloat16> once = {nearest_bfloat16(group.rank() == 0 ? 1 : group.rank() <= 2 ? 0x1p-8 : 0)};
  group.all_reduce(rank.stream, InOut(tensor_of(once)), Reduction::sum).wait(rank.stream);  // rounding twice would give 1
  CHECK(widen(once[0]) == 1 + 0x1p-7f, "bfloat16 sums round once: ", widen(once[0]));
}

// Several blocks of a reduction with a remainder, and messages beyond any eager limit, both ways at once.
inline void check_large(HostCommunicator& group) {
  Rank rank;
  const int64_t count = (int64_t{5} << 20) / 2 + 3;  // 10 MiB of float32
  std::vector<float> values = numbers<float>(group.rank(), count);
  group.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
  expect_same(values, reduced<float>(group.size(), count, Reduction::sum), label<float>(group, "all_reduce", count));
  check_reductions<bfloat16>(group, rank.stream, count / 2);
  check_moves<float>(group, rank.stream, count / 4);
}

// Messages keep the order of the calls, whatever their sizes and whatever is waited for first.
inline void check_order(HostCommunicator& world) {
  if (world.size() < 2) return;
  Rank rank;
  const std::vector<int64_t> counts = {1, 300000, 7, 100, 50000, 2};
  const int size = world.size();
  for (int other = 0; other < size; ++other) {
    if (other == world.rank()) continue;
    for (size_t i = 0; i < counts.size(); ++i) {
      std::vector<float> values = numbers<float>(world.rank() * 100 + static_cast<int>(i), counts[i]);
      world.send(rank.stream, tensor_of(values), other).wait(rank.stream);
    }
  }
  for (int other = size - 1; other >= 0; --other) {
    if (other == world.rank()) continue;
    std::vector<std::vector<float>> received;
    std::vector<Work> works;
    for (const int64_t count : counts) {
      received.emplace_back(static_cast<size_t>(count));
      works.push_back(world.recv(rank.stream, tensor_of(received.back()), other));
    }
    for (const size_t i : {5, 0, 1, 4, 2}) works[i].wait(rank.stream);
    works.clear();  // the one that is left waits while it is destroyed
    for (size_t i = 0; i < counts.size(); ++i) {
      expect_same(received[i], numbers<float>(other * 100 + static_cast<int>(i), counts[i]), "order of messages");
    }
  }
}

inline void check_text(HostCommunicator& group) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{65536}, size_t{200001}}) {
    for (int root = 0; root < group.size(); ++root) {
      const auto text_of = [&](int rank) {
        const std::string text(rank % 2 == 0 ? length : length / 3, static_cast<char>('a' + rank % 26));
        return text + std::string("\0\xc3\xa9", 3) + std::to_string(rank);
      };
      CHECK(group.broadcast_text(text_of(group.rank()), root) == text_of(root), "broadcast_text");
      CHECK(group.broadcast_text(group.rank() == root ? "" : "other", root).empty(), "broadcast_text of nothing");
      const std::vector<std::string> texts = group.gather_text(text_of(group.rank()), root);
      CHECK(texts.size() == (group.rank() == root ? static_cast<size_t>(group.size()) : 0), "gather_text");
      for (size_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == text_of(static_cast<int>(i)), "gather_text from ", i);
    }
  }
}

// Groups of the first 1 .. limit ranks (the others form none), in reversed order.
inline void check_groups(HostCommunicator& world, int limit) {
  for (int size = 1; size <= std::min(world.size(), limit); ++size) {
    if (world.rank() >= size) continue;
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.rbegin(), members.rend(), 0);
    const std::unique_ptr<HostCommunicator> group = world.split(members, "group");
    CHECK(group->size() == size && group->rank() == size - 1 - world.rank() && group->name() == "group", "split");
    check_operations(*group);
    check_special_values(*group);
    check_text(*group);
  }
}

// Rows and columns of every mesh that the world makes, and groups of groups.
inline void check_meshes(HostCommunicator& world) {
  for (int width = 1; width <= world.size(); ++width) {
    if (world.size() % width != 0) continue;
    const int height = world.size() / width;
    const int row = world.rank() / width;
    const int column = world.rank() % width;
    std::vector<int> row_members, column_members;
    for (int i = 0; i < width; ++i) row_members.push_back(row * width + i);
    for (int i = 0; i < height; ++i) column_members.push_back(i * width + column);
    const std::unique_ptr<HostCommunicator> rows = world.split(row_members, "row");
    const std::unique_ptr<HostCommunicator> columns = world.split(column_members, "column");
    CHECK(rows->rank() == column && columns->rank() == row, "places in the mesh");
    Rank rank;
    std::vector<int64_t> values = {world.rank()};
    rows->all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
    CHECK(values[0] == int64_t{row} * width * width + width * (width - 1) / 2, "sum of row ", row, ": ", values[0]);
    columns->all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
    CHECK(values[0] == int64_t{world.size()} * (world.size() - 1) / 2, "sum of all: ", values[0]);
    const std::unique_ptr<HostCommunicator> self = rows->split({rows->rank()}, "self");
    const std::unique_ptr<HostCommunicator> again = self->split({0}, "again");
    CHECK(again->size() == 1 && again->rank() == 0, "group of one");
  }
}

// Wrong calls are refused before anything moves, on every rank alike.
inline void check_refusals(HostCommunicator& world) {
  Rank rank;
  Stream& stream = rank.stream;
  std::vector<float> four(4), five(4 * static_cast<size_t>(world.size()) + 1);
  std::vector<uint8_t> bytes(4);
  const int size = world.size();
  const Tensor meta(nullptr, DType::float32, Shape{4}, DeviceKind::meta);
  const Tensor column = tensor_of(four).view(Shape{2, 2}).slice(1, 0, 1);
  expect_error([&] { world.all_reduce(stream, InOut(tensor_of(bytes)), Reduction::sum).wait(stream); }, "uint8 has no sum");
  expect_error([&] { world.all_reduce(stream, InOut(column), Reduction::sum).wait(stream); }, "not contiguous");
  expect_error([&] { world.all_gather(stream, tensor_of(four), tensor_of(five)).wait(stream); }, "do not make");
  expect_error([&] { world.reduce_scatter(stream, tensor_of(five), tensor_of(four)).wait(stream); }, "is not");
  expect_error([&] { world.all_to_all(stream, tensor_of(four), tensor_of(five)).wait(stream); }, "all_to_all of");
  expect_error([&] { world.broadcast(stream, InOut(tensor_of(four)), size).wait(stream); }, "no rank");
  expect_error([&] { world.send(stream, tensor_of(four), world.rank()).wait(stream); }, "to itself");
  expect_error([&] { world.recv(stream, tensor_of(four), -1).wait(stream); }, "no rank");
  expect_error([&] { world.split({world.rank(), world.rank()}, "twice"); }, "twice");
  expect_error([&] { world.split({world.rank(), size}, "outside"); }, "no rank");
  expect_error([&] { world.split({}, "nobody"); }, "not among");
  Stream without;
  expect_error([&] { world.all_reduce(without, InOut(tensor_of(four)), Reduction::sum).wait(without); }, "needs a ledger");
  if (size > 1) expect_error([&] { world.all_reduce(stream, InOut(meta), Reduction::sum).wait(stream); }, "on meta");
  CHECK(rank.ledger.traffic().empty(), "a refused call was counted");
}

}  // namespace shiftron::conformance
