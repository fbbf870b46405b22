// Reads rows, finds document borders, uploads.
#include "train/staging.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/kernels.h"

namespace shiftron {
namespace {

enum Row { kIds, kTargets, kAttentionStart, kShiftStart, kPositions, kCopiedFrom, kKeptFrom, kRowKinds };

}  // namespace

BatchStaging::BatchStaging(const RunConfig& config, Stream& stream, int times, int64_t attending_rows)
    : config_(config),
      stream_(stream),
      rows_(config.train.micro_batch * config.train.sequence_length),
      attending_rows_(attending_rows),
      times_(times),
      uploads_(stream, "uploads") {
  CHECK(attending_rows == 0 || config.train.micro_batch == 1, config.train.micro_batch, " samples that share rows");
  const Shape shape = {begin_of(kRowKinds)};
  const int64_t bytes = shape.count() * size_of(DType::int32);
  pinned_ = staging_buffer(stream, 2 * bytes);
  device_ = Buffer(stream.device, 2 * bytes, *stream.ledger, "batches");
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * bytes;
    slots_[i].pinned = pinned_.tensor(begin, DType::int32, shape);
    slots_[i].device = device_.tensor(begin, DType::int32, shape);
  }
  if (stream.device == DeviceKind::meta) return;
  host_.ids.resize(static_cast<size_t>(rows_));
  host_.targets.resize(static_cast<size_t>(rows_));
  host_.document_starts.resize(static_cast<size_t>(count_of(kAttentionStart)));
  host_.copied_from.resize(static_cast<size_t>(count_of(kCopiedFrom)));
  host_.kept_from.resize(static_cast<size_t>(count_of(kKeptFrom)));
}

int64_t BatchStaging::count_of(int kind) const {
  const bool shared = attending_rows_ > 0;
  switch (kind) {
    case kIds:
    case kTargets:
      return rows_;
    case kCopiedFrom:
      return attending_rows_;
    case kKeptFrom:
      return shared ? rows_ : 0;
    default:
      return shared ? attending_rows_ : rows_;
  }
}

int64_t BatchStaging::begin_of(int kind) const {
  int64_t begin = 0;
  for (int before = 0; before < kind; ++before) begin += count_of(before);
  return begin;
}

DeviceBatch BatchStaging::load(int index, const BatchReader& read, Arena& arena, int64_t& attended, bool apart) {
  CHECK(apart || attending_rows_ == 0, "documents that share rows must be kept apart");
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  if (stream_.device != DeviceKind::meta) fill(index, read, slot, attended, apart);
  Stream& uploads = uploads_.get();
  slot.taken.wait(uploads);
  upload(uploads, slot.pinned, slot.device);
  slot.uploaded.record(uploads);
  slot.uploaded.wait(stream_);
  const Tensor rows = arena.allocate(DType::int32, slot.device.shape());
  copy(stream_, slot.device, rows);
  slot.taken.record(stream_);
  const auto row = [&](int kind) { return rows.rows(begin_of(kind), count_of(kind)); };
  const bool shared = attending_rows_ > 0;
  return {.batch = {row(kIds), row(kTargets)},
          .documents = {.attention_start = row(kAttentionStart),
                        .shift_start = row(kShiftStart),
                        .positions = row(kPositions),
                        .cut = config_.data.document_reset || apart,
                        .copied_from = shared ? row(kCopiedFrom) : Tensor(),
                        .kept_from = shared ? row(kKeptFrom) : Tensor()}};
}

void BatchStaging::fill(int index, const BatchReader& read, Slot& slot, int64_t& attended, bool apart) {
  const auto start = std::chrono::steady_clock::now();
  const auto kept = kept_.find(index);
  if (kept == kept_.end()) read(index, host_);
  slot.uploaded.wait_on_host();
  int32_t* const first = slot.pinned.host_data<int32_t>();
  if (kept != kept_.end()) {
    std::ranges::copy(kept->second.rows, first);
    if (--kept->second.times == 0) kept_.erase(kept);
  } else {
    attended += arrange(slot.pinned, apart);
    if (times_ > 1) kept_[index] = {.rows = {first, first + slot.pinned.shape().count()}, .times = times_ - 1};
  }
  stream_.ledger->times.data += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t BatchStaging::arrange(const Tensor& rows, bool apart) const {
  int32_t* const first = rows.host_data<int32_t>();
  const auto row = [&](int kind) { return first + begin_of(kind); };
  std::ranges::copy(host_.ids, row(kIds));
  std::ranges::copy(host_.targets, row(kTargets));
  std::ranges::copy(host_.copied_from, row(kCopiedFrom));
  std::ranges::copy(host_.kept_from, row(kKeptFrom));
  const int64_t attending = count_of(kPositions);
  const int64_t length = attending_rows_ > 0 ? attending_rows_ : config_.train.sequence_length;
  find_documents(host_.document_starts, length, config_.data.document_reset || apart,
                 apart ? ShiftReset::automatic : config_.model.shift.reset, row(kAttentionStart), row(kShiftStart),
                 row(kPositions));
  check_row_starts(row(kAttentionStart), attending, {.sequence_length = length});
  check_row_positions(row(kPositions), attending, config_.train.sequence_length);
  // A row at position p of the rows that it attends to sees p + 1 rows.
  return std::accumulate(row(kPositions), row(kPositions) + attending, attending);
}

void find_documents(const std::vector<uint8_t>& document_starts, int64_t sequence_length, bool document_reset,
                    ShiftReset shift_reset, int32_t* attention_start, int32_t* shift_start, int32_t* positions) {
  const int64_t rows = static_cast<int64_t>(document_starts.size());
  for (int64_t sample = 0; sample < rows; sample += sequence_length) {
    int64_t document = sample;
    for (int64_t row = sample; row < sample + sequence_length; ++row) {
      if (document_starts[row] != 0) document = row;
      const int64_t attention = document_reset ? document : sample;
      attention_start[row] = static_cast<int32_t>(attention);
      positions[row] = static_cast<int32_t>(row - attention);
      const int64_t shift = shift_reset == ShiftReset::automatic ? attention
                            : shift_reset == ShiftReset::always  ? document
                                                                 : sample;
      shift_start[row] = static_cast<int32_t>(shift);
    }
  }
}

}  // namespace shiftron
