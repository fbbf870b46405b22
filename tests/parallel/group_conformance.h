// What every way to form groups and every control plane must do.
#pragma once

#include "parallel/communicator_conformance.h"

namespace shiftron::conformance {

inline void check_text(ControlPlane& group) {
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
inline void check_groups(const Tested& tested, int limit) {
  const int rank = tested.control.rank();
  for (int size = 1; size <= std::min(tested.control.size(), limit); ++size) {
    if (rank >= size) continue;
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.rbegin(), members.rend(), 0);
    const std::unique_ptr<Communicator> data = tested.split(members, "group");
    const std::unique_ptr<HostCommunicator> control = tested.control.split(members, "control");
    CHECK(data->size() == size && data->rank() == size - 1 - rank && data->name() == "group", "split");
    const Group group{tested, *data, *control};
    check_operations(group);
    check_special_values(group);
    check_text(*control);
  }
}

// Rows and columns of every mesh that the world makes.
inline void check_meshes(const Tested& tested) {
  const int size = tested.control.size();
  for (int width = 1; width <= size; ++width) {
    if (size % width != 0) continue;
    const int height = size / width;
    const int row = tested.control.rank() / width;
    const int column = tested.control.rank() % width;
    std::vector<int> row_members, column_members;
    for (int i = 0; i < width; ++i) row_members.push_back(row * width + i);
    for (int i = 0; i < height; ++i) column_members.push_back(i * width + column);
    const std::unique_ptr<Communicator> rows = tested.split(row_members, "row");
    const std::unique_ptr<Communicator> columns = tested.split(column_members, "column");
    CHECK(rows->rank() == column && columns->rank() == row, "places in the mesh");
    Rank rank(tested);
    const Tensor value = rank.put(std::vector<int64_t>{tested.control.rank()});
    const auto sum = [&](Communicator& group) {
      return rank.read<int64_t>(value, group.all_reduce(rank.stream, InOut(value), Reduction::sum))[0];
    };
    const int64_t of_row = sum(*rows);
    CHECK(of_row == int64_t{row} * width * width + width * (width - 1) / 2, "sum of row ", row, ": ", of_row);
    const int64_t of_all = sum(*columns);
    CHECK(of_all == int64_t{size} * (size - 1) / 2, "sum of all: ", of_all);
  }
}

// Two groups at once: waiting for one of them first must not delay the other.
inline void check_two_at_once(const Tested& tested) {
  const std::vector<int> all = all_ranks(tested.control);
  const std::unique_ptr<Communicator> first = tested.split(all, "first"), second = tested.split(all, "second");
  const int size = first->size();
  if (size < 2) return;
  Rank rank(tested);
  const auto check = [&](int64_t count, const auto& start, auto expected) {
    const Tensor one = rank.put(numbers<int32_t>(first->rank(), count));
    const Tensor two = rank.put(numbers<int32_t>(first->rank(), count));
    Work of_first = start(*first, one, 1), of_second = start(*second, two, 0);
    if (first->rank() % 2 == 0) of_first.wait_on_host();
    of_second.wait_on_host();
    of_first.wait_on_host();
    expect_same(rank.read_in_stream<int32_t>(one), expected(1), "first of two groups");
    expect_same(rank.read_in_stream<int32_t>(two), expected(0), "second of two groups");
  };
  const auto reduce = [&](Communicator& group, const Tensor& tensor, int) {
    return group.all_reduce(rank.stream, InOut(tensor), Reduction::max);
  };
  for (const int64_t count : {1, 3001}) {
    check(count, reduce, [&](int) { return reduced<int32_t>(size, 0, count, Reduction::max); });
  }
  const auto broadcast = [&](Communicator& group, const Tensor& tensor, int root) {
    return group.broadcast(rank.stream, InOut(tensor), root);
  };
  check(5, broadcast, [](int root) { return numbers<int32_t>(root, 5); });
}

// Groups of groups, and members that are refused.
inline void check_split(HostCommunicator& world) {
  const std::unique_ptr<HostCommunicator> all = world.split(all_ranks(world), "all");
  const std::unique_ptr<HostCommunicator> self = all->split({all->rank()}, "self");
  const std::unique_ptr<HostCommunicator> again = self->split({0}, "again");
  CHECK(again->size() == 1 && again->rank() == 0 && again->name() == "again", "group of one");
  expect_error([&] { world.split({world.rank(), world.rank()}, "twice"); }, "twice");
  expect_error([&] { world.split({world.rank(), world.size()}, "outside"); }, "no rank");
  expect_error([&] { world.split({}, "nobody"); }, "not among");
}

}  // namespace shiftron::conformance
