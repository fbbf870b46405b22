// What every communicator must do: checks over a group, for any implementation; each throws Error if it fails.
#pragma once

#include <chrono>
#include <thread>

#include "parallel/conformance_ranks.h"

namespace shiftron::conformance {

template <typename T>
std::string label(const Group& group, const char* operation, int64_t count) {
  return detail::concatenate(operation, " ", name_of(DTypeOf<T>::value), " x ", count, ", rank ", group.rank(), " of ",
                             group.size());
}

template <typename T>
void expect_same_on_all(const Group& group, const std::vector<T>& found, const std::string& what) {
  const std::string mine(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(T));
  const std::string first = group.control.broadcast_text(mine, 0);
  CHECK(first.size() == mine.size(), what, ": rank 0 has ", first.size(), " bytes");
  for (size_t i = 0; i < mine.size(); ++i) {
    CHECK(mine[i] == first[i], what, ": element ", i / sizeof(T), " differs from that of rank 0");
  }
}

// Of elements begin .. of all ranks' numbers.
template <typename T>
void expect_sum(const Group& group, const std::vector<T>& found, int64_t begin, const std::string& what) {
  const auto count = static_cast<int64_t>(found.size());
  const bool exact = std::is_integral_v<T> || group.tested.level == Level::rank_order;
  if (!exact) return expect_near_sum(found, group.size(), begin, what);
  const std::vector<T> expected = reduced<T>(group.size(), begin, count, Reduction::sum);
  expect_same(found, expected, what);
  if (std::is_floating_point_v<T> && group.size() >= 3 && count >= 1000) {
    const std::vector<T> backwards = reduced<T>(group.size(), begin, count, Reduction::sum, true);
    CHECK(std::memcmp(expected.data(), backwards.data(), expected.size() * sizeof(T)) != 0, "the order does not show");
  }
}

template <typename T>
void check_reductions(const Group& group, Reader reader, int64_t count) {
  Rank rank(group.tested, reader);
  for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
    if (std::is_same_v<T, uint8_t> && reduction == Reduction::sum) continue;
    const Tensor tensor = rank.put(numbers<T>(group.rank(), count));
    constexpr bool kFloating = !std::is_integral_v<T>;
    if (kFloating && reduction == Reduction::max && !group.tested.floating_maxima && group.size() > 1) {
      expect_error([&] { group.data.all_reduce(rank.stream, InOut(tensor), reduction).wait(rank.stream); }, "maximum");
      continue;
    }
    const std::vector<T> found = rank.read<T>(tensor, group.data.all_reduce(rank.stream, InOut(tensor), reduction));
    const std::string what = label<T>(group, "all_reduce", count);
    if (reduction == Reduction::sum)
      expect_sum(group, found, 0, what);
    else
      expect_same(found, reduced<T>(group.size(), 0, count, Reduction::max), what);
    if (group.tested.level == Level::any_order) expect_same_on_all(group, found, what);
  }
  if constexpr (!std::is_same_v<T, uint8_t>) {
    const std::vector<T> input = numbers<T>(group.rank(), count * group.size());
    const Tensor whole = rank.put(input);
    const Tensor piece = rank.blank<T>(count);
    const std::vector<T> found = rank.read<T>(piece, group.data.reduce_scatter(rank.stream, whole, piece));
    expect_sum(group, found, group.rank() * count, label<T>(group, "reduce_scatter", count));
    expect_same(rank.read_in_stream<T>(whole), input, "input of reduce_scatter");
  }
}

template <typename T>
void check_gathers(const Group& group, Reader reader, int64_t count) {
  Rank rank(group.tested, reader);
  std::vector<T> expected;
  for (int from = 0; from < group.size(); ++from) {
    const std::vector<T> theirs = numbers<T>(from, count);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  const Tensor piece = rank.put(numbers<T>(group.rank(), count));
  const Tensor whole = rank.blank<T>(count * group.size());
  expect_same(rank.read<T>(whole, group.data.all_gather(rank.stream, piece, whole)), expected,
              label<T>(group, "all_gather", count));

  std::vector<T> values(expected.size());
  std::copy_n(expected.begin() + group.rank() * count, count, values.begin() + group.rank() * count);
  const Tensor all = rank.put(values);
  expect_same(rank.read<T>(all, group.data.all_gather(rank.stream, all.rows(group.rank() * count, count), all)),
              expected, label<T>(group, "all_gather in place", count));
}

template <typename T>
void check_moves(const Group& group, Reader reader, int64_t count) {
  check_gathers<T>(group, reader, count);
  Rank rank(group.tested, reader);
  const int size = group.size();
  std::vector<T> parts, expected;  // part r is for rank r: numbers(rank * size + r)
  for (int other = 0; other < size; ++other) {
    const std::vector<T> mine = numbers<T>(group.rank() * size + other, count);
    const std::vector<T> theirs = numbers<T>(other * size + group.rank(), count);
    parts.insert(parts.end(), mine.begin(), mine.end());
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  const Tensor sent = rank.put(parts);
  const Tensor arrived = rank.blank<T>(count * size);
  expect_same(rank.read<T>(arrived, group.data.all_to_all(rank.stream, sent, arrived)), expected,
              label<T>(group, "all_to_all", count));

  for (int root = 0; root < size; ++root) {
    const Tensor values = rank.put(numbers<T>(group.rank() == root ? 77 + root : 0, count));
    expect_same(rank.read<T>(values, group.data.broadcast(rank.stream, InOut(values), root)),
                numbers<T>(77 + root, count), label<T>(group, "broadcast", count));
  }
  if (size < 2) return;
  const auto send = [&] {
    const Tensor values = rank.put(numbers<T>(group.rank(), count));
    rank.await(group.data.send(rank.stream, values, (group.rank() + 1) % size));
    rank.fill(values, std::vector<T>(static_cast<size_t>(count)));  // may be written again
  };
  const bool late = group.tested.sends_wait && group.rank() % 2 == 1;  // else everyone sends first: around the ring
  if (!late) send();
  const int from = (group.rank() + size - 1) % size;
  const Tensor received = rank.blank<T>(count);
  expect_same(rank.read<T>(received, group.data.recv(rank.stream, received, from)), numbers<T>(from, count),
              label<T>(group, "recv", count));
  if (late) send();
}

template <typename T>
void check_dtype(const Group& group) {
  for (const int64_t count : group.tested.counts) {
    for (const Reader reader : {Reader::host, Reader::stream}) {
      if (reader == Reader::stream && group.tested.queue == nullptr && count != 7) continue;  // shows nothing new
      check_reductions<T>(group, reader, count);
      check_moves<T>(group, reader, count);
    }
  }
}

inline void check_operations(const Group& group) {
  check_dtype<double>(group);
  check_dtype<float>(group);
  check_dtype<bfloat16>(group);
  check_dtype<int64_t>(group);
  check_dtype<int32_t>(group);
  check_dtype<uint8_t>(group);
  group.control.barrier();
}

// Large integers, infinities, NaN, negative zero, ties of bfloat16.
inline void check_special_values(const Group& group) {
  Rank rank(group.tested);
  const int size = group.size();
  const int last = size - 1;
  const auto all_reduced = [&]<typename T>(const std::vector<T>& values, Reduction reduction) {
    const Tensor tensor = rank.put(values);
    return rank.read<T>(tensor, group.data.all_reduce(rank.stream, InOut(tensor), reduction));
  };
  const int64_t share = (int64_t{1} << 62) / size;
  const auto large = all_reduced(std::vector<int64_t>{share + group.rank(), -1}, Reduction::sum);
  CHECK(large[0] == share * size + int64_t{last} * size / 2 && large[1] == -size, "large integers: ", large[0]);
  const float infinity = INFINITY;
  const std::vector<float> values = {group.rank() == last ? infinity : 1.0f, group.rank() == 0 ? NAN : 1.0f, -0.0f,
                                     group.rank() == last ? NAN : infinity};
  for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
    if (reduction == Reduction::max && !group.tested.floating_maxima) continue;
    const std::vector<float> found = all_reduced(values, reduction);
    CHECK(found[0] == infinity && std::isnan(found[1]) && std::signbit(found[2]) && std::isnan(found[3]),
          "special values: ", found[0], " ", found[1], " ", found[2], " ", found[3]);
  }
  if (size < 2) return;
  // 1 + 1/256 and 1 + 3/256 are halfway between two bfloat16 and go to the even ones; 1 + 1.5/256 goes up.
  const auto part = [&](double first, double second) {
    return nearest_bfloat16(group.rank() == 0 ? first : group.rank() == 1 ? second : 0);
  };
  const auto ties =
      all_reduced(std::vector{part(1, 0x1p-8), part(1 + 0x1p-7, 0x1p-8), part(1, 0x1.8p-8)}, Reduction::sum);
  CHECK(widen(ties[0]) == 1 && widen(ties[1]) == 1 + 0x1p-6f && widen(ties[2]) == 1 + 0x1p-7f,
        "ties of bfloat16: ", widen(ties[0]), " ", widen(ties[1]), " ", widen(ties[2]));
  if (size < 3) return;
  const auto once = all_reduced(std::vector{nearest_bfloat16(group.rank() == 0   ? 1
                                                             : group.rank() <= 2 ? 0x1p-8
                                                                                 : 0)},
                                Reduction::sum);
  CHECK(widen(once[0]) == 1 + 0x1p-7f, "bfloat16 sums round once: ", widen(once[0]));  // twice would give 1
}

// Several blocks of a reduction with a remainder, and messages beyond any eager limit, both ways at once.
inline void check_large(const Group& group) {
  const int64_t count = (int64_t{5} << 20) / 2 + 3;  // 10 MiB of float32
  check_reductions<float>(group, Reader::host, count);
  check_reductions<bfloat16>(group, Reader::host, count / 2);
  check_moves<float>(group, Reader::host, count / 4);
}

// Messages keep the order of the calls, whatever their sizes and whatever is waited for first.
inline void check_order(const Group& group, Reader reader) {
  if (group.size() < 2) return;
  Rank rank(group.tested, reader);
  const std::vector<int64_t> counts = {1, 300000, 7, 100, 50000, 2};
  const auto count_of = [&](size_t i) { return std::min(counts[i], 3 * group.tested.counts.back()); };
  const auto send = [&](int other) {
    for (size_t i = 0; i < counts.size(); ++i) {
      const Tensor values = rank.put(numbers<float>(group.rank() * 100 + static_cast<int>(i), count_of(i)));
      rank.await(group.data.send(rank.stream, values, other));
    }
  };
  const auto receive = [&](int other) {
    std::vector<Tensor> received;
    std::vector<Work> works;
    for (size_t i = 0; i < counts.size(); ++i) {
      received.push_back(rank.blank<float>(count_of(i)));
      works.push_back(group.data.recv(rank.stream, received.back(), other));
    }
    for (const size_t i : {5, 0, 1, 4, 2}) rank.await(std::move(works[i]));
    works.clear();  // the stream waits for the one that is left
    for (size_t i = 0; i < counts.size(); ++i) {
      const std::vector<float> expected = numbers<float>(other * 100 + static_cast<int>(i), count_of(i));
      expect_same(rank.read_in_stream<float>(received[i]), expected, "order of messages");
    }
  };
  const int size = group.size();
  for (int pair = 0; group.tested.sends_wait && pair < size * size; ++pair) {
    if (pair / size == pair % size) continue;
    if (pair / size == group.rank()) send(pair % size);
    if (pair % size == group.rank()) receive(pair / size);
  }
  if (group.tested.sends_wait) return;
  for (int other = 0; other < size; ++other) {
    if (other != group.rank()) send(other);
  }
  for (int other = size - 1; other >= 0; --other) {
    if (other != group.rank()) receive(other);
  }
}

// Copies that nobody takes do not grow in number: rank 0 is held back by the third message until rank 1, late, takes
// one.
inline void check_sends_ahead(const Group& group) {
  if (group.size() < 2 || group.tested.sends_wait) return;
  constexpr int kMessages = 5;
  constexpr int64_t kCount = 1 << 18;  // beyond any eager limit
  Rank rank(group.tested);
  const auto start = std::chrono::steady_clock::now();  // before rank 1's
  group.control.barrier();
  if (group.rank() == 0) {
    std::vector<double> passed;  // seconds
    for (int i = 0; i < kMessages; ++i) {
      const Tensor values = rank.put(numbers<float>(i, kCount));
      rank.await(group.data.send(rank.stream, values, 1, 2));
      passed.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    if (group.tested.queue == nullptr) CHECK(passed[2] > 0.15, "the third message was sent after ", passed[2], " s");
  } else if (group.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int i = 0; i < kMessages; ++i) {
      const Tensor received = rank.blank<float>(kCount);
      expect_same(rank.read<float>(received, group.data.recv(rank.stream, received, 0)), numbers<float>(i, kCount),
                  "sends ahead");
    }
  }
  group.control.barrier();
}

// Wrong calls are refused before anything moves, on every rank.
inline void check_refusals(const Group& group) {
  Rank rank(group.tested);
  Stream& stream = rank.stream;
  Communicator& data = group.data;
  const int size = group.size();
  const Tensor four = rank.blank<float>(4), five = rank.blank<float>(4 * size + 1), bytes = rank.blank<uint8_t>(4);
  const Tensor meta(nullptr, DType::float32, Shape{4}, DeviceKind::meta);
  const Tensor column = four.view(Shape{2, 2}).slice(1, 0, 1);
  expect_error([&] { data.all_reduce(stream, InOut(bytes), Reduction::sum).wait(stream); }, "uint8 has no sum");
  expect_error([&] { data.all_reduce(stream, InOut(column), Reduction::sum).wait(stream); }, "not contiguous");
  expect_error([&] { data.all_gather(stream, four, five).wait(stream); }, "do not make");
  expect_error([&] { data.reduce_scatter(stream, five, four).wait(stream); }, "is not");
  expect_error([&] { data.all_to_all(stream, four, five).wait(stream); }, "all_to_all of");
  expect_error([&] { data.broadcast(stream, InOut(four), size).wait(stream); }, "no rank");
  expect_error([&] { data.send(stream, four, group.rank()).wait(stream); }, "to itself");
  expect_error([&] { data.recv(stream, four, -1).wait(stream); }, "no rank");
  Stream without;
  expect_error([&] { data.all_reduce(without, InOut(four), Reduction::sum).wait(without); }, "needs a ledger");
  if (size > 1) expect_error([&] { data.all_reduce(stream, InOut(meta), Reduction::sum).wait(stream); }, "on meta");
  CHECK(rank.ledger.traffic().empty(), "a refused call was counted");
}

}  // namespace shiftron::conformance
