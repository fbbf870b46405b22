// Exchanges of buckets compared bit for bit with plain sums over all that hold an element; each bucket once, in
// whatever order it is completed.
#include "parallel/bucket_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "parallel/random_parameters.h"

namespace shiftron::testing {
namespace {

constexpr uint64_t kExchangeCases = 60;

// A rank's part of the gradient of an element.
double part_of_gradient(const std::string& name, int64_t index, int rank) {
  const Philox random(static_cast<uint64_t>(rank), name);
  return random.normal(static_cast<uint64_t>(index));
}

// Calls visit(index in the box, index in the logical tensor).
void for_each_element_of(const Parameter& one, const std::function<void(int64_t, int64_t)>& visit) {
  for (int64_t local = 0; local < one.box.extent.count(); ++local) {
    int64_t rest = local, logical = 0, scale = 1;
    for (int dim = one.spec.shape.dims() - 1; dim >= 0; --dim) {
      logical += (one.box.offset[dim] + rest % one.box.extent[dim]) * scale;
      rest /= one.box.extent[dim];
      scale *= one.spec.shape[dim];
    }
    visit(local, logical);
  }
}

// The sum over each holder's data-parallel ranks, then over the holders, each in rank order.
template <typename Real>
Real whole_gradient(const RandomCase& c, const Groups& groups, const ParameterSpec& spec, int64_t index) {
  const int rank = c.layout.rank(groups.at);
  std::vector<int> holders = {rank};
  switch (holders_of(spec, c.layout)) {
    case Holders::none:
      break;
    case Holders::tensor_parallel:
      holders = c.layout.group(rank, Axis::tp);
      break;
    case Holders::kv_replica:
      holders = c.layout.kv_replica_group(rank, c.kv_heads);
      break;
    case Holders::tied:
      holders = c.layout.tied_embedding_group(rank);
      break;
  }
  Real whole = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    const std::vector<int> copies = c.layout.group(holders[i], Axis::dp);
    auto sum = static_cast<Real>(part_of_gradient(spec.name, index, copies[0]));
    for (size_t j = 1; j < copies.size(); ++j) sum += static_cast<Real>(part_of_gradient(spec.name, index, copies[j]));
    whole = i == 0 ? sum : whole + sum;
  }
  return whole;
}

// Completes places in an order of `seed`, perhaps not all of them; each bucket starts with the last of its places.
void complete_some(BucketExchange& exchange, Stream& stream, const ParameterSet& set, const Ledger& ledger,
                   uint64_t seed) {
  using Place = std::pair<Part, int>;
  std::vector<Place> places;
  for (const auto& one : set.parameters()) {
    const Place place{one->spec.part, one->spec.layer};
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  std::mt19937_64 random(seed);
  std::shuffle(places.begin(), places.end(), random);
  if (seed % 3 == 0) places.resize(places.size() / 2);
  const auto started = [&] {
    const auto found = ledger.traffic().find(set.divided() ? "dp reduce_scatter" : "dp all_reduce");
    return found == ledger.traffic().end() ? int64_t{0} : found->second.calls;
  };
  std::set<Place> done;
  for (const Place& place : places) {
    exchange.complete(stream, place.first, place.second);
    done.insert(place);
    const int64_t complete = std::ranges::count_if(set.buckets(), [&](const Bucket& bucket) {
      return std::ranges::all_of(bucket.parameters, [&](const Parameter* one) {
        return done.contains({one->spec.part, one->spec.layer});
      });
    });
    if (set.layout().dp > 1) {
      EXPECT_EQ(started(), complete);
    }
  }
  exchange.finish(stream);
  if (set.layout().dp > 1) {
    EXPECT_EQ(started(), static_cast<int64_t>(set.buckets().size()));
  }
}

template <typename Real>
void expect_sums(const RandomCase& c, const Groups& groups, const ParameterSet& set) {
  for (const auto& one : set.parameters()) {
    for_each_element_of(*one, [&](int64_t local, int64_t logical) {
      if (local < one->kept.begin || local >= one->kept.end) return;
      ASSERT_EQ(one->gradient.data<Real>()[local], whole_gradient<Real>(c, groups, one->spec, logical))
          << one->spec.name << ", element " << logical;
    });
  }
}

// What a parameter's update would write.
template <typename Real>
Real updated_weight(const ParameterSpec& spec, int64_t index) {
  return static_cast<Real>(std::hash<std::string>{}(spec.name) % 1000) + static_cast<Real>(index);
}

// Only what this rank updates is there before the weights are gathered.
template <typename Real>
void expect_gathered(BucketExchange& exchange, Stream& stream, ParameterSet& set) {
  for (const auto& one : set.parameters()) {
    for_each_element_of(*one, [&](int64_t local, int64_t logical) {
      const bool mine = local >= one->kept.begin && local < one->kept.end;
      one->weight.data<Real>()[local] =
          mine ? updated_weight<Real>(one->spec, logical) : std::numeric_limits<Real>::quiet_NaN();
    });
  }
  for (const Bucket& bucket : set.buckets()) exchange.gather(stream, bucket);
  set.await_weights(stream, [](const ParameterSpec&) { return true; });
  for (const auto& one : set.parameters()) {
    for_each_element_of(*one, [&](int64_t local, int64_t logical) {
      ASSERT_EQ(one->weight.data<Real>()[local], updated_weight<Real>(one->spec, logical)) << one->spec.name;
    });
  }
}

template <typename Real>
void expect_exchanged(const RandomCase& c) {
  run_thread_ranks(c.layout.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Stream stream{.ledger = &ledger};
    const Groups groups = make_groups(world, c.layout, c.kv_heads);
    ParameterSet set(c.layout, groups.at, c.types);
    declare_random(set, c);
    set.allocate(stream, true, c.division);
    BucketExchange exchange(groups, set);
    for (const uint64_t step : {1, 2}) {
      for (const auto& one : set.parameters()) {
        for_each_element_of(*one, [&](int64_t local, int64_t logical) {
          one->gradient.data<Real>()[local] =
              static_cast<Real>(part_of_gradient(one->spec.name, logical, world.rank()));
        });
      }
      ledger.clear_work();
      exchange.begin();
      complete_some(exchange, stream, set, ledger, c.seed + step + static_cast<uint64_t>(groups.at.pp));
      expect_sums<Real>(c, groups, set);
    }
    expect_gathered<Real>(exchange, stream, set);
  });
}

TEST(BucketExchange, SumsAndWeightsAreThoseOfPlainLoops) {
  for (uint64_t seed = 0; seed < kExchangeCases; ++seed) {
    RandomCase c = random_case(seed, 4, 5, 2);
    if (c.layout.ranks() > 8) c.layout.dp = std::max(1, 8 / (c.layout.tp * c.layout.pp));
    if (c.types.activation == DType::bfloat16) c.types.activation = DType::float32;
    SCOPED_TRACE(c.text());
    if (c.types.accumulation == DType::float64)
      expect_exchanged<double>(c);
    else
      expect_exchanged<float>(c);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace shiftron::testing
