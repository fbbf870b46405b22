// The conformance suite detects a communicator that adds in another order, and ones with injected faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/group_conformance.h"

namespace shiftron {
namespace {

using conformance::Level;

// Another communicator with something changed. Without queues.
class Wrapped : public Communicator {
 public:
  explicit Wrapped(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()), inner_(std::move(inner)) {}
  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override {
    return inner_->all_reduce(stream, tensor, reduction);
  }
  Work all_gather(Stream& stream, ConstTensor piece, Tensor whole) override {
    return inner_->all_gather(stream, piece, whole);
  }
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override {
    return inner_->reduce_scatter(stream, whole, piece);
  }
  Work all_to_all(Stream& stream, ConstTensor send, Tensor receive) override {
    return inner_->all_to_all(stream, send, receive);
  }
  Work broadcast(Stream& stream, InOut tensor, int root) override { return inner_->broadcast(stream, tensor, root); }
  Work send(Stream& stream, ConstTensor tensor, int to, int most_ahead) override {
    return inner_->send(stream, tensor, to, most_ahead);
  }
  Work recv(Stream& stream, Tensor tensor, int from) override { return inner_->recv(stream, tensor, from); }
  void abandon() noexcept override { inner_->abandon(); }

 private:
  std::unique_ptr<HostCommunicator> inner_;
};

// Adds from the last rank to the first.
class AddsBackwards : public Wrapped {
 public:
  explicit AddsBackwards(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()),
        Wrapped(inner->split(conformance::all_ranks(*inner), inner->name())) {
    std::vector<int> members = conformance::all_ranks(*inner);
    std::reverse(members.begin(), members.end());
    backwards_ = inner->split(members, name());
  }
  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override {
    return backwards_->all_reduce(stream, tensor, reduction);
  }
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override {
    const auto* from = static_cast<const std::byte*>(whole.raw());
    std::vector<std::byte> sum(from, from + whole.bytes());
    all_reduce(stream, InOut(Tensor(sum.data(), whole.dtype(), whole.shape(), whole.device())), Reduction::sum)
        .wait_on_host();
    std::copy_n(sum.begin() + rank() * piece.bytes(), piece.bytes(), static_cast<std::byte*>(piece.raw()));
    return {};
  }

 private:
  std::unique_ptr<HostCommunicator> backwards_;
};

// Rank 1 gets another bit than the others.
class FlipsABit : public Wrapped {
 public:
  explicit FlipsABit(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()), Wrapped(std::move(inner)) {}
  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override {
    Wrapped::all_reduce(stream, tensor, reduction).wait_on_host();
    const bool floating = tensor.tensor.dtype() == DType::float32 || tensor.tensor.dtype() == DType::float64;
    if (rank() == 1 && reduction == Reduction::sum && floating && tensor.tensor.count() > 0) {
      std::byte* const last = static_cast<std::byte*>(tensor.tensor.raw()) + tensor.tensor.bytes();
      last[-size_of(tensor.tensor.dtype())] ^= std::byte{1};
    }
    return {};
  }
};

// The last element of sums lacks what the last rank holds.
class LosesAPart : public Wrapped {
 public:
  explicit LosesAPart(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()), Wrapped(std::move(inner)) {}
  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override {
    if (reduction == Reduction::sum) lose(tensor.tensor);
    return Wrapped::all_reduce(stream, tensor, reduction);
  }

 private:
  void lose(const Tensor& tensor) const {
    if (rank() != size() - 1 || tensor.count() == 0) return;
    std::byte* const end = static_cast<std::byte*>(tensor.raw()) + tensor.bytes();
    std::fill(end - size_of(tensor.dtype()), end, std::byte{0});
  }
};

// The same of reduce_scatter.
class LosesAPiece : public Wrapped {
 public:
  explicit LosesAPiece(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()), Wrapped(std::move(inner)) {}
  Work reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) override {
    const auto* from = static_cast<const std::byte*>(whole.raw());
    std::vector<std::byte> parts(from, from + whole.bytes());
    if (rank() == size() - 1 && whole.count() > 0)
      std::fill(parts.end() - size_of(whole.dtype()), parts.end(), std::byte{0});
    return Wrapped::reduce_scatter(stream, Tensor(parts.data(), whole.dtype(), whole.shape(), whole.device()), piece);
  }
};

// Rounds to bfloat16 after every rank.
class RoundsTwice : public Wrapped {
 public:
  explicit RoundsTwice(std::unique_ptr<HostCommunicator> inner)
      : RankGroup(inner->name(), inner->rank(), inner->size()), Wrapped(std::move(inner)) {}
  Work all_reduce(Stream& stream, InOut tensor, Reduction reduction) override {
    if (tensor.tensor.dtype() != DType::bfloat16 || reduction != Reduction::sum) {
      return Wrapped::all_reduce(stream, tensor, reduction);
    }
    const int64_t count = tensor.tensor.count();
    std::vector<bfloat16> all(static_cast<size_t>(count * size()));
    Wrapped::all_gather(stream, tensor.tensor, conformance::tensor_of(all)).wait_on_host();
    bfloat16* const sum = tensor.tensor.data<bfloat16>();
    std::copy_n(all.begin(), count, sum);
    for (int64_t i = count; i < count * size(); ++i) {
      const float next = conformance::widen(sum[i % count]) + conformance::widen(all[static_cast<size_t>(i)]);
      sum[i % count] = conformance::nearest_bfloat16(next);
    }
    return {};
  }
};

template <typename Changed>
void check(int ranks, Level level) {
  run_thread_ranks(ranks, [level, ranks](HostCommunicator& world) {
    const std::vector<int> all = conformance::all_ranks(world);
    const std::unique_ptr<HostCommunicator> control = world.split(all, "control");
    Changed changed(world.split(all, "world"));
    const conformance::Tested tested{
        .world = changed,
        .control = *control,
        .split = [&](const std::vector<int>& members,
                     const std::string& name) { return std::make_unique<Changed>(world.split(members, name)); },
        .level = level,
        .counts = {0, 1, 7, 5000}};
    const conformance::Group group = conformance::whole(tested);
    conformance::check_operations(group);
    conformance::check_special_values(group);
    conformance::check_order(group, conformance::Reader::stream);
    conformance::check_groups(tested, ranks);
    conformance::check_meshes(tested);
  });
}

template <typename Changed>
std::string refusal(int ranks, Level level) {
  try {
    check<Changed>(ranks, level);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

using ::testing::HasSubstr;

TEST(Levels, BothAcceptSumsInRankOrder) {
  EXPECT_EQ(refusal<Wrapped>(3, Level::rank_order), "accepted");
  EXPECT_EQ(refusal<Wrapped>(3, Level::any_order), "accepted");
}

TEST(Levels, OnlyAnyOrderAcceptsAnotherOrder) {
  for (const int ranks : {3, 4, 5}) {
    EXPECT_EQ(refusal<AddsBackwards>(ranks, Level::any_order), "accepted");
    EXPECT_THAT(refusal<AddsBackwards>(ranks, Level::rank_order), HasSubstr("instead of"));
  }
}

TEST(Levels, BothRefuseRanksThatDifferInOneBit) {
  EXPECT_THAT(refusal<FlipsABit>(3, Level::any_order), HasSubstr("differs from that of rank 0"));
  EXPECT_THAT(refusal<FlipsABit>(3, Level::rank_order), HasSubstr("instead of"));
}

TEST(Levels, BothRefuseALostPart) {
  EXPECT_THAT(refusal<LosesAPart>(3, Level::any_order), HasSubstr("off the sum"));
  EXPECT_THAT(refusal<LosesAPart>(3, Level::rank_order), HasSubstr("instead of"));
  EXPECT_THAT(refusal<LosesAPiece>(3, Level::any_order), HasSubstr("reduce_scatter float64"));
  EXPECT_THAT(refusal<LosesAPiece>(3, Level::rank_order), HasSubstr("instead of"));
}

TEST(Levels, BothRefuseRoundingAtEveryRank) {
  for (const Level level : {Level::any_order, Level::rank_order}) {
    EXPECT_THAT(refusal<RoundsTwice>(3, level), HasSubstr("bfloat16"));
  }
}

}  // namespace
}  // namespace shiftron
