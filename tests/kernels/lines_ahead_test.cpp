// Prefetched cache lines: in which order, and which ones attention's tiles ask for.
#include "kernels/lines_ahead.h"

#include <map>

#include "kernels/attention_tasks.h"
#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

using fast::LinesAhead;
using Use = LinesAhead::Use;
using Line = std::pair<Use, const char*>;

std::vector<Line> next_lines(LinesAhead& ahead, int count) {
  std::vector<Line> lines;
  ahead.take(count, [&](Use use, const char* line) { lines.emplace_back(use, line); });
  return lines;
}

TEST(LinesAhead, GoRowByRowFromOneStretchToTheNext) {
  const std::vector<char> memory(1024);
  const char* at = memory.data();
  LinesAhead ahead;
  ahead.add(Use::writing, at, 2, 65, 256);  // a line, and a byte of a second one
  ahead.add(Use::reading, at + 512, 1, 64, 0);
  EXPECT_EQ(next_lines(ahead, 3),
            (std::vector<Line>{{Use::writing, at}, {Use::writing, at + 64}, {Use::writing, at + 256}}));
  EXPECT_EQ(next_lines(ahead, 5), (std::vector<Line>{{Use::writing, at + 320}, {Use::reading, at + 512}}));
  EXPECT_EQ(next_lines(ahead, 1), std::vector<Line>{});
  fast::fetch_lines(&ahead, 1);
  fast::fetch_lines(nullptr, 1);
}

TEST(LinesAhead, RefusesStretchesWithoutLinesAndTooMany) {
  LinesAhead ahead;
  EXPECT_THROW(ahead.add(Use::reading, nullptr, 0, 64, 64), Error);
  EXPECT_THROW(ahead.add(Use::reading, nullptr, 1, 0, 64), Error);
  for (int i = 0; i < 4; ++i) ahead.add(Use::reading, nullptr, 1, 64, 64);
  EXPECT_THROW(ahead.add(Use::reading, nullptr, 1, 64, 64), Error);
}

// Two samples of 70 positions, three tiles each of which the last has six, two KV heads of two query heads; a head's
// row is a cache line. Something lies between the rows, as in a fused projection.
struct AttentionLines {
  static constexpr int64_t kLength = 70, kRows = 2 * kLength, kHeads = 4, kDim = 16;
  using Times = std::map<const char*, int>;

  AttentionLines()
      : start(DType::int32, {kRows}, std::vector<double>(kRows)), k(DType::float32, {kRows, kHeads / 2, kDim}) {}
  static Owned rows_of_queries() { return Owned(DType::float32, {kRows, kHeads, kDim}, DeviceKind::cpu, 48); }
  fast::AttentionTasks tasks() const { return {1, q, k, start, AttentionShape{kLength}, fast::AttentionTiles::kRows}; }
  void count(LinesAhead ahead) {
    ahead.take(1 << 20, [&](Use use, const char* line) { ++(use == Use::writing ? written : read)[line]; });
  }
  // All heads in the positions [first, last) of both samples.
  static void add_lines(const Tensor& of, int64_t first, int64_t last, int times, Times& lines) {
    for (int64_t row = 0; row < kRows; ++row) {
      if (row % kLength < first || row % kLength >= last) continue;
      for (int64_t head = 0; head < kHeads; ++head) {
        lines[reinterpret_cast<const char*>(of.data<float>() + row * of.stride(0) + head * kDim)] += times;
      }
    }
  }
  Owned q = rows_of_queries(), out = rows_of_queries(), d_q = rows_of_queries(), d_out = rows_of_queries();
  Owned start, k;
  Times written, read, expected_written, expected_read;
};

TEST(LinesAhead, OfForwardAreItsResultAndTheNextQueries) {
  AttentionLines in;
  const fast::AttentionTasks tasks = in.tasks();
  tasks.for_tiles([](int) { return 0; }, [&](const fast::Tile& tile, int64_t head,
                                             int) { in.count(tasks.lines_of_forward(tile, head, in.q, in.out)); });
  in.add_lines(in.out, 0, 70, 1, in.expected_written);
  in.add_lines(in.q, 0, 64, 1, in.expected_read);  // the tile of the last six comes first
  EXPECT_EQ(in.written, in.expected_written);
  EXPECT_EQ(in.read, in.expected_read);
}

TEST(LinesAhead, OfBackwardAreItsResultAndWhatTheNextTileReads) {
  AttentionLines in;
  const fast::AttentionTasks tasks = in.tasks();
  const fast::AttentionGradients gradients{in.d_out, in.out, {}, in.d_q, {}, {}};
  const auto nothing = [](auto&&...) {};
  tasks.for_gradients([](int) { return 0; }, nothing,
                      [&](const fast::Tile& tile, int64_t head, int64_t, int64_t, bool, bool, int) {
                        in.count(tasks.lines_of_backward(tile, head, in.q, gradients, true));
                        in.count(tasks.lines_of_backward(tile, head, in.q, gradients, false));
                      },
                      nothing);
  in.add_lines(in.d_q, 0, 70, 1, in.expected_written);
  for (const Owned* of : {&in.d_out, &in.out, &in.q}) in.add_lines(*of, 32, 70, 2, in.expected_read);
  EXPECT_EQ(in.written, in.expected_written);
  EXPECT_EQ(in.read, in.expected_read);
}

}  // namespace
}  // namespace shiftron::kernel_testing
