// Which algorithms the libraries take: timed at the start, the same on all ranks, kept.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/queue_cuda.h"
#include "cuda/gpus.h"
#include "train/device.h"
#include "train/library_choices.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

RunConfig device_config(ParallelSection parallel = {}) {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::bf16);
  config.device.kind = DeviceChoice::cuda;
  config.parallel = parallel;
  return config;
}

// Of every rank: with `work(trainer, read, world)` on a trainer whose weights are set.
void with_trainers(const RunConfig& config, int ranks,
                   const std::function<void(Trainer&, const BatchReader&, HostCommunicator&)>& work) {
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Ledger ledger, planned;
    Stream stream{.ledger = &ledger};
    const std::unique_ptr<Queue> queue = start_device(config, {.local_rank = world.rank()}, world, stream).queue;
    const ParallelLayout layout = make_layout(config.parallel, ranks);
    const MemoryPlan plan = plan_memory(config, layout, world.rank(), 1, planned);
    Trainer trainer(config, make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device),
                    stream, plan);
    trainer.engine().parameters().initialise(5);
    work(trainer, [](int, HostBatch& batch) { std::ranges::fill(batch.targets, 7); }, world);
  });
}

std::string chosen(const RunConfig& config, const std::string& kept) {
  Log log;
  std::string agreed;
  with_trainers(config, 1, [&](Trainer& trainer, const BatchReader& read, HostCommunicator& world) {
    agreed = choose_algorithms(config, trainer, read, world, kept, "kept", log);
  });
  return agreed;
}

TEST(LibraryChoices, AreTimedAndKept) {
  const std::string first = chosen(device_config(), "");
  const nlohmann::json products = nlohmann::json::parse(first).at("products").at("products");
  EXPECT_GE(products.size(), 12u);  // of query, key and value, out, gate, up, down, head: forward and both backward
  for (const nlohmann::json& product : products) EXPECT_GT(product.at("seconds").get<double>(), 0) << product;
  EXPECT_EQ(chosen(device_config(), first), first);  // times are kept, so nothing was timed
}

TEST(LibraryChoices, AreTheFirstCandidatesWhereRunsRepeat) {
  RunConfig config = device_config();
  config.train.deterministic = Deterministic::repeat;
  const std::string first = chosen(config, "");
  const nlohmann::json choices = nlohmann::json::parse(first);
  for (const nlohmann::json& product : choices.at("products").at("products")) {
    EXPECT_EQ(product.at("seconds").get<double>(), 0) << product;
  }
  EXPECT_EQ(chosen(config, ""), first);
}

TEST(LibraryChoices, OfAnotherDeviceAreMadeAnew) {
  nlohmann::json other = nlohmann::json::parse(chosen(device_config(), ""));
  other["products"]["device"] = "another device";
  ::testing::internal::CaptureStderr();
  const std::string anew = chosen(device_config(), other.dump());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("another device"), std::string::npos);
  EXPECT_NE(nlohmann::json::parse(anew).at("products").at("device"), "another device");
}

TEST(LibraryChoices, RanksWithTheSameShapesTakeTheSame) {
  const RunConfig config = device_config({.tp = 2, .pp = 2});
  Log log;
  std::mutex mutex;
  std::vector<std::string> of_ranks;
  NEED_GPUS(4);
  with_trainers(config, 4, [&](Trainer& trainer, const BatchReader& read, HostCommunicator& world) {
    choose_algorithms(config, trainer, read, world, "", "", log);
    const std::lock_guard lock(mutex);
    of_ranks.push_back(trainer.engine().libraries().choices());
  });
  for (const std::string& choices : of_ranks) EXPECT_EQ(choices, of_ranks.front());
}

TEST(LibraryChoices, ChoosingChangesNothing) {
  const RunConfig config = device_config();
  Log log;
  with_trainers(config, 1, [&](Trainer& trainer, const BatchReader& read, HostCommunicator& world) {
    std::mutex mutex;
    TensorMap before, behind;
    collect(trainer.engine().parameters(), masters_of, before, mutex);
    choose_algorithms(config, trainer, read, world, "", "", log);
    collect(trainer.engine().parameters(), masters_of, behind, mutex);
    EXPECT_EQ(before, behind);
    EXPECT_TRUE(trainer.engine().stream().ledger->kernels().empty());
    EXPECT_EQ(trainer.state(), TrainerState{});
  });
}

}  // namespace
}  // namespace shiftron::testing
