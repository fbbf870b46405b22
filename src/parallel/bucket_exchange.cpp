// Which bucket is exchanged when, and among which ranks.
#include "parallel/bucket_exchange.h"

#include <algorithm>

#include "core/trace_range.h"

namespace shiftron {

void BucketExchange::begin() {
  sums_.clear();
  for (const Bucket& bucket : set_.buckets()) {
    Sum& sum = sums_.emplace_back();
    for (const Parameter* parameter : bucket.parameters) {
      const std::pair place{parameter->spec.part, parameter->spec.layer};
      if (std::ranges::find(sum.incomplete, place) == sum.incomplete.end()) sum.incomplete.push_back(place);
    }
  }
}

void BucketExchange::complete(Stream& stream, Part part, int layer) {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (std::erase(sums_[i].incomplete, std::pair{part, layer}) > 0 && sums_[i].incomplete.empty()) start(stream, i);
  }
}

void BucketExchange::start(Stream& stream, size_t bucket) {
  const TraceRange range("exchange of bucket ", bucket);
  const Tensor& gradients = set_.buckets()[bucket].gradients;
  Sum& sum = sums_[bucket];
  sum.started = true;
  if (set_.divided())
    sum.work = groups_.dp->reduce_scatter(stream, gradients, updated(set_.buckets()[bucket], gradients));
  else
    sum.work = groups_.dp->all_reduce(stream, InOut(gradients), Reduction::sum);
}

void BucketExchange::finish(Stream& stream) {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (!sums_[i].started) start(stream, i);
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].work.wait(stream);
    sum_over_holders(stream, set_.buckets()[i]);
  }
}

void BucketExchange::sum_over_holders(Stream& stream, const Bucket& bucket) {
  const auto group_of = [&](Holders holders) -> Communicator* {
    switch (holders) {
      case Holders::none: return nullptr;
      case Holders::tensor_parallel: return groups_.tp.get();
      case Holders::kv_replica: return groups_.kv_replica.get();
      case Holders::tied: return groups_.tied.get();
    }
    return nullptr;
  };
  const Range mine = set_.divided() ? bucket.part : Range{0, bucket.size};
  // Neighbours with the same holders are summed together, with the padding between them.
  for (size_t i = 0; i < bucket.parameters.size();) {
    const Holders holders = holders_of(bucket.parameters[i]->spec, set_.layout());
    size_t next = i + 1;
    while (next < bucket.parameters.size() && holders_of(bucket.parameters[next]->spec, set_.layout()) == holders) ++next;
    const int64_t begin = std::max(mine.begin, bucket.parameters[i]->offset - bucket.begin);
    const Parameter& last = *bucket.parameters[next - 1];
    const int64_t end = std::min(mine.end, last.offset - bucket.begin + last.box.extent.count());
    i = next;
    Communicator* group = group_of(holders);
    if (group == nullptr || begin >= end) continue;
    const InOut rows(bucket.gradients.rows(begin, end - begin));
    group->all_reduce(stream, rows, Reduction::sum).wait(stream);
    // Each data-parallel rank has made this sum in a group of its own.
    const bool is_identical = set_.divided() || group->size() <= 2 || group->sums_in_rank_order(stream);
    if (!is_identical) groups_.dp->broadcast(stream, rows, 0).wait(stream);
  }
}

void BucketExchange::gather(Stream& stream, const Bucket& bucket) {
  if (!set_.divided() || groups_.dp->size() == 1) return;
  set_.expect_weights(bucket, groups_.dp->all_gather(stream, updated(bucket, bucket.weights), bucket.weights));
}

Tensor BucketExchange::updated(const Bucket& bucket, const Tensor& whole) const {
  return set_.divided() ? whole.rows(bucket.part.begin, bucket.part.size()) : whole;
}

}  // namespace shiftron
