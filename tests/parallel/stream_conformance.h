// What communicators must do for streams that are ordered only by events: several streams of a rank, several groups,
// receives that are posted early. The host checks the results at the end.
#pragma once

#include "parallel/group_conformance.h"

namespace shiftron::conformance {

// Rounds over the same memory: one stream's sum is another stream's operand, whose gathered copies the first one reads
// before it writes its part again.
inline void check_streams(const Tested& tested) {
  const std::vector<int> all = all_ranks(tested.control);
  const std::unique_ptr<Communicator> sums = tested.split(all, "sums"), gathers = tested.split(all, "gathers");
  const int size = sums->size(), place = sums->rank();
  constexpr int64_t kCount = 1021;
  Rank one(tested), two(tested);
  const Tensor part = one.blank<float>(kCount), sum = two.blank<float>(kCount);
  const Tensor whole = one.blank<float>(kCount * size), seen = one.blank<float>(kCount * size);
  const auto values = [](int number) {  // whose sums are exact
    std::vector<float> all_of_it(kCount);
    for (size_t i = 0; i < all_of_it.size(); ++i) all_of_it[i] = static_cast<float>(number + static_cast<int>(i % 13));
    return all_of_it;
  };
  Event made;
  made.record(two.stream);
  made.wait(one.stream);
  made.record(one.stream);
  made.wait(two.stream);
  Work read;  // of `sum`, by the last round's gather
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    one.fill(part, values(place + round));
    sums->all_reduce(one.stream, InOut(part), Reduction::sum).wait(two.stream);
    read.wait(two.stream);
    copy(two.stream, part, sum);
    Event copied;
    copied.record(two.stream);
    copied.wait(one.stream);  // `part` may be filled again, and `whole` comes after what reads it
    read = gathers->all_gather(one.stream, sum, whole);
    read.wait(one.stream);
    copy(one.stream, whole, seen);
  }
  read = Work();
  std::vector<float> total(kCount), expected;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<float> theirs = values(rank + kRounds - 1);
    std::transform(total.begin(), total.end(), theirs.begin(), total.begin(), std::plus<float>());
  }
  for (int rank = 0; rank < size; ++rank) expected.insert(expected.end(), total.begin(), total.end());
  expect_same(one.read_in_stream<float>(seen), expected, "rounds over two streams and two groups");
  two.finish();
}

// Stages in a ring, with a channel each way between neighbours, as in a pipeline: what a stage receives is posted
// before it sends, two messages ahead.
inline void check_channels(const Tested& tested) {
  const int size = tested.control.size(), place = tested.control.rank();
  if (size < 2) return;
  constexpr int kMessages = 5;
  constexpr int64_t kCount = 777;
  std::vector<std::unique_ptr<Communicator>> groups(static_cast<size_t>(2 * size));  // forward, then backward, of stage
  for (int from = 0; from < 2 * size; ++from) {
    const int sender = from % size, receiver = (from < size ? sender + 1 : sender + size - 1) % size;
    if (place == sender || place == receiver)
      groups[static_cast<size_t>(from)] = tested.split({sender, receiver}, "pp");
  }
  Rank rank(tested);
  struct Way {
    Communicator &out, &in;
    int from, tag;
    std::vector<Tensor> received;
    std::deque<Work> posted;
  };
  const int before = (place + size - 1) % size, behind = (place + 1) % size;
  const auto group = [&](int index) -> Communicator& { return *groups[static_cast<size_t>(index)]; };
  Way ways[] = {{group(place), group(before), before, 0, {}, {}},
                {group(size + place), group(size + behind), behind, 50, {}, {}}};
  const auto post = [&](Way& way) {
    way.received.push_back(rank.blank<int32_t>(kCount));
    way.posted.push_back(way.in.recv(rank.stream, way.received.back(), 0));
  };
  const auto message = [](int stage, const Way& way, int number) {
    return numbers<int32_t>(stage * 100 + way.tag + number, kCount);
  };
  for (Way& way : ways) {
    for (int ahead = 0; ahead < 2; ++ahead) post(way);
  }
  for (int number = 0; number < kMessages; ++number) {
    for (Way& way : ways) {
      way.out.send(rank.stream, rank.put(message(place, way, number)), 1).wait(rank.stream);
      if (number + 2 < kMessages) post(way);
      way.posted.front().wait(rank.stream);
      way.posted.pop_front();
    }
  }
  for (const Way& way : ways) {
    for (int number = 0; number < kMessages; ++number) {
      expect_same(rank.read_in_stream<int32_t>(way.received[static_cast<size_t>(number)]),
                  message(way.from, way, number), "messages that were awaited early");
    }
  }
}

}  // namespace shiftron::conformance
