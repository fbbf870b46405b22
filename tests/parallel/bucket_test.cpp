// Buckets in memory: equal parts that tile every parameter, the same on all holders, in the order of completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "parallel/random_parameters.h"

namespace shiftron::testing {
namespace {

constexpr uint64_t kBucketCases = 250;

struct Member {
  Ledger ledger;
  ParameterSet set;
  Member(const RandomCase& c, int rank) : set(c.layout, c.layout.coordinates(rank), c.types) {
    declare_random(set, c);
    set.allocate(Stream{.ledger = &ledger}, true, c.division);
  }
};

std::vector<std::unique_ptr<Member>> all_members(const RandomCase& c) {
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < c.layout.ranks(); ++rank) members.push_back(std::make_unique<Member>(c, rank));
  return members;
}

const std::byte* address(const Tensor& tensor, int64_t element = 0) {
  return static_cast<const std::byte*>(tensor.raw()) + element * size_of(tensor.dtype());
}

// Every parameter is in one bucket, after the one before it, at its offset.
void expect_places(const ParameterSet& set) {
  int64_t end = 0;
  std::set<const Parameter*> seen;
  for (const Bucket& bucket : set.buckets()) {
    EXPECT_EQ(bucket.begin, end);
    end += bucket.size;
    int64_t behind = bucket.begin;
    for (const Parameter* one : bucket.parameters) {
      EXPECT_TRUE(seen.insert(one).second) << one->spec.name;
      EXPECT_GE(one->offset, behind) << one->spec.name;
      behind = one->offset + one->box.extent.count();
      EXPECT_EQ(one->spec.keep_precise, bucket.parameters.front()->spec.keep_precise);
      EXPECT_EQ(address(one->gradient), address(bucket.gradients, one->offset - bucket.begin)) << one->spec.name;
      EXPECT_EQ(address(one->weight), address(bucket.weights, one->offset - bucket.begin)) << one->spec.name;
      EXPECT_EQ(one->weight.dtype(), bucket.weights.dtype());
    }
    EXPECT_LE(behind, bucket.begin + bucket.size);
    EXPECT_EQ(bucket.weights.count(), bucket.size);
  }
  EXPECT_EQ(seen.size(), set.parameters().size());
  EXPECT_EQ(set.gradients().count(), end);
}

// What a rank keeps is its part where memory is divided, else all, and lies nowhere twice.
void expect_kept(const ParameterSet& set, const Ledger& ledger) {
  std::map<const std::byte*, const std::byte*> taken;  // begin → end
  for (const auto& one : set.parameters()) {
    const Range all{0, one->box.extent.count()};
    EXPECT_EQ(one->kept, set.divided() ? one->part : all) << one->spec.name;
    const bool halves = set.types().activation == DType::bfloat16 && !one->spec.keep_precise;
    EXPECT_EQ(one->rest.defined(), halves) << one->spec.name;
    std::vector<Tensor> kept = {one->first_moment, one->second_moment};
    if (halves) kept.push_back(one->rest);
    for (const Tensor& tensor : kept) {
      EXPECT_EQ(tensor.count(), one->kept.size()) << one->spec.name;
      if (tensor.count() > 0) {
        EXPECT_TRUE(taken.emplace(address(tensor), address(tensor, tensor.count())).second);
      }
    }
  }
  const std::byte* end = nullptr;
  for (const auto& [begin, behind] : taken) {
    EXPECT_GE(begin, end);
    end = behind;
  }
  const int64_t gradients = set.gradients().bytes();
  const int64_t parts = set.divided() ? set.layout().dp : 1;
  const auto optimizer = ledger.memory().find("optimizer");
  if (gradients > 0) {
    EXPECT_EQ(optimizer->second, 2 * gradients / parts);
  }
}

// Parts of the data-parallel ranks are equal, in rank order, and tile each parameter.
void expect_parts(const std::vector<const ParameterSet*>& copies) {
  const ParameterSet& first = *copies.front();
  std::vector<int64_t> ends(first.parameters().size(), 0);
  for (size_t rank = 0; rank < copies.size(); ++rank) {
    const ParameterSet& set = *copies[rank];
    ASSERT_EQ(set.buckets().size(), first.buckets().size());
    for (const Bucket& bucket : set.buckets()) {
      const int64_t part = bucket.size / static_cast<int64_t>(copies.size());
      EXPECT_EQ(part * static_cast<int64_t>(copies.size()), bucket.size);
      EXPECT_EQ(bucket.part, (Range{static_cast<int64_t>(rank) * part, static_cast<int64_t>(rank + 1) * part}));
      for (const Parameter* one : bucket.parameters) {
        const int64_t at = one->offset - bucket.begin;
        for (int64_t i = one->part.begin; i < one->part.end; ++i) {
          ASSERT_TRUE(at + i >= bucket.part.begin && at + i < bucket.part.end) << one->spec.name << " " << i;
        }
      }
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      const Parameter& one = *set.parameters()[i];
      EXPECT_EQ(one.offset, first.parameters()[i]->offset);
      if (one.part.size() == 0) continue;
      EXPECT_EQ(one.part.begin, ends[i]) << one.spec.name << ", rank " << rank;
      ends[i] = one.part.end;
    }
  }
  for (size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i], first.parameters()[i]->box.extent.count());
}

// Where the elements summed with `holders` are in their buckets, one after the other.
using Place = std::tuple<std::string, int64_t, int64_t, int64_t, int64_t, int64_t>;
std::vector<Place> places_of(const ParameterSet& set, Holders holders) {
  std::vector<Place> places;
  for (const Bucket& bucket : set.buckets()) {
    for (const Parameter* one : bucket.parameters) {
      if (holders_of(one->spec, set.layout()) != holders) continue;
      places.emplace_back(one->spec.name, one->offset - bucket.begin, one->box.extent.count(), bucket.size,
                          bucket.part.begin, bucket.part.end);
    }
  }
  return places;
}

int order_of(const ParameterSpec& spec) {
  switch (spec.part) {
    case Part::head:
      return 0;
    case Part::final_norm:
      return 1;
    case Part::layer:
      return 1000 - spec.layer;
    case Part::embedding:
      return 2000;
  }
  return -1;
}

void expect_order(const ParameterSet& set) {
  int before = -1;
  for (const Bucket& bucket : set.buckets()) {
    int complete = -1;
    for (const Parameter* one : bucket.parameters) complete = std::max(complete, order_of(one->spec));
    EXPECT_GE(complete, before);
    before = complete;
  }
}

// A bucket takes no more once it has enough; all of its parameters have the holders of its kind.
void expect_filling(const ParameterSet& set, const std::vector<Declared>& declared, int64_t enough) {
  std::map<const Parameter*, size_t> group;
  size_t groups = 0;
  for (size_t i = 0; i < declared.size(); ++i) {
    const Parameter* one = set.parameters()[i].get();
    if (declared[i].adjacent) {
      const Parameter* before = set.parameters()[i - 1].get();
      EXPECT_EQ(address(one->weight), address(before->weight, before->weight.count())) << one->spec.name;
      EXPECT_EQ(address(one->gradient), address(before->gradient, before->gradient.count())) << one->spec.name;
      EXPECT_EQ(one->weight_offset, before->weight_offset + before->weight.count());
    } else {
      ++groups;
    }
    group[one] = groups;
  }
  std::map<std::pair<bool, Holders>, std::vector<const Bucket*>> kinds;
  for (const Bucket& bucket : set.buckets()) {
    std::map<size_t, Holders> holders;
    for (const Parameter* one : bucket.parameters) {
      Holders& most = holders.try_emplace(group[one], Holders::none).first->second;
      most = std::max(most, holders_of(one->spec, set.layout()));
    }
    for (const auto& [of, kind] : holders) EXPECT_EQ(kind, holders.begin()->second) << of;
    const Parameter& first = *bucket.parameters.front();
    kinds[{first.spec.keep_precise, holders.begin()->second}].push_back(&bucket);
    if (enough == 0) continue;
    const size_t last = group[bucket.parameters.back()];
    for (const Parameter* one : bucket.parameters) {
      if (group[one] != last) {
        EXPECT_LT(one->offset - bucket.begin + one->box.extent.count(), enough);
      }
    }
  }
  for (const auto& [kind, buckets] : kinds) {
    if (enough == 0) {
      EXPECT_EQ(buckets.size(), 1u);
    }
    for (size_t i = 0; i + 1 < buckets.size(); ++i) {
      const Parameter& last = *buckets[i]->parameters.back();
      EXPECT_GE(last.offset - buckets[i]->begin + last.box.extent.count(), enough);
    }
  }
}

TEST(Bucket, EveryElementHasOneOwnerAndItsPlace) {
  for (uint64_t seed = 0; seed < kBucketCases; ++seed) {
    const RandomCase c = random_case(seed, 4, 7, 2);
    SCOPED_TRACE(c.text());
    const auto members = all_members(c);
    for (int rank = 0; rank < c.layout.ranks(); ++rank) {
      const Member& member = *members[static_cast<size_t>(rank)];
      expect_places(member.set);
      expect_kept(member.set, member.ledger);
      expect_order(member.set);
      expect_filling(member.set, random_parameters(c, member.set.at().pp), c.division.bucket_elements);
      if (member.set.at().dp > 0) continue;
      std::vector<const ParameterSet*> copies;
      for (const int other : c.layout.group(rank, Axis::dp))
        copies.push_back(&members[static_cast<size_t>(other)]->set);
      expect_parts(copies);
    }
    if (HasFailure()) return;
  }
}

TEST(Bucket, HoldersHaveTheSameParts) {
  for (uint64_t seed = 1000; seed < 1000 + kBucketCases; ++seed) {
    const RandomCase c = random_case(seed, 8, 3, 3);
    SCOPED_TRACE(c.text());
    const auto members = all_members(c);
    const auto expect_alike = [&](const std::vector<int>& group, Holders holders) {
      const auto places = [&](int rank) { return places_of(members[static_cast<size_t>(rank)]->set, holders); };
      for (const int other : group) EXPECT_EQ(places(other), places(group.front())) << static_cast<int>(holders);
    };
    for (int rank = 0; rank < c.layout.ranks(); ++rank) {
      expect_alike(c.layout.group(rank, Axis::tp), Holders::tensor_parallel);
      expect_alike(c.layout.kv_replica_group(rank, c.kv_heads), Holders::kv_replica);
      expect_alike(c.layout.tied_embedding_group(rank), Holders::tied);
    }
    if (HasFailure()) return;
  }
}

struct TwoMatrices {
  Ledger ledger;
  ParameterSet set;
  TwoMatrices(int dp, int at, int64_t first, int64_t second, int64_t bucket_elements)
      : set({.dp = dp}, {.dp = at}, {DType::float32, DType::float32}) {
    set.declare({.name = "first", .shape = {first}, .initial = init_constant(1), .layer = 0});
    set.declare({.name = "second", .shape = {second}, .initial = init_constant(1), .layer = 1});
    set.allocate(Stream{.ledger = &ledger}, true, {.divided = true, .bucket_elements = bucket_elements});
  }
};

TEST(Bucket, AParameterLargerThanABucketIsDividedAsOne) {
  for (int at = 0; at < 3; ++at) {
    const TwoMatrices two(3, at, 1000, 10, 100);
    ASSERT_EQ(two.set.buckets().size(), 1u);  // ten elements leave room
    EXPECT_EQ(two.set.buckets()[0].size, 3 * 384);
    const Range expected[] = {{0, 320}, {320, 704}, {704, 1000}};
    EXPECT_EQ(two.set.find("first")->part, expected[at]);
    EXPECT_EQ(two.set.find("second")->part.size(), at == 0 ? 10 : 0);
    const TwoMatrices turned(3, at, 10, 1000, 100);
    EXPECT_EQ(turned.set.buckets().size(), 2u);
  }
}

TEST(Bucket, AnElementHasOneOwnerAmongSeven) {
  for (int at = 0; at < 7; ++at) {
    const TwoMatrices two(7, at, 1, 1, 1);
    ASSERT_EQ(two.set.buckets().size(), 2u);
    for (const Bucket& bucket : two.set.buckets()) {
      EXPECT_EQ(bucket.size, 7 * 64);
      EXPECT_EQ(bucket.parameters.front()->kept.size(), at == 0 ? 1 : 0);
      EXPECT_EQ(bucket.parameters.front()->first_moment.count(), at == 0 ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
