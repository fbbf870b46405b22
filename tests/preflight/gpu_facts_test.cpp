// GPUs of a job that differ from the others.
#include "preflight/gpu_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shiftron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(GpuFacts, AreReadFromWhatNvidiaSmiPrints) {
  const GpuFacts facts = gpu_facts(
      "NVIDIA A100-SXM4-80GB, 550.54.15, 81920 MiB, 1410 MHz, 400.00 W, Enabled, [N/A], 4, 16\n",
      "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: <inactive>\n");
  EXPECT_THAT(facts, ElementsAre(Pair("clocks.max.sm", "1410 MHz"), Pair("driver_version", "550.54.15"),
                                 Pair("ecc.mode.current", "Enabled"), Pair("memory.total", "81920 MiB"),
                                 Pair("name", "NVIDIA A100-SXM4-80GB"), Pair("nvlink", "2 x 25 GB/s"),
                                 Pair("pcie.link.gen.current", "4"), Pair("pcie.link.width.current", "16"),
                                 Pair("power.limit", "400.00 W")));
  EXPECT_THAT(gpu_facts("", ""), IsEmpty());
  EXPECT_THAT(facts_of_gpu("0; echo x"), IsEmpty());
}

// Two hosts of four identical GPUs.
std::vector<RankGpu> two_hosts() {
  std::vector<RankGpu> gpus;
  for (int rank = 0; rank < 8; ++rank) {
    gpus.push_back({rank < 4 ? "n0" : "n1",
                    rank % 4,
                    {{"driver_version", "580.1"}, {"power.limit", "700.00 W"}, {kMemoryErrors, "0"}}});
  }
  return gpus;
}

std::vector<std::string> texts(const std::vector<GpuRemark>& remarks) {
  std::vector<std::string> lines;
  for (const GpuRemark& remark : remarks) lines.push_back(remark.host + ": " + remark.what);
  return lines;
}

TEST(GpuFacts, TheOddGpuIsNamedWithItsValueAndTheOthers) {
  std::vector<RankGpu> gpus = two_hosts();
  EXPECT_THAT(odd_gpus(gpus), IsEmpty());
  gpus[6].facts["power.limit"] = "500.00 W";
  gpus[1].facts.clear();  // without nvidia-smi
  EXPECT_THAT(texts(odd_gpus(gpus)),
              ElementsAre("n1: the GPU of its rank 2: power.limit is 500.00 W, most have 700.00 W (nvidia-smi)"));
}

TEST(GpuFacts, AHostIsToldOfOnceForAValue) {
  std::vector<RankGpu> gpus = two_hosts();
  for (size_t rank = 4; rank < 8; ++rank) gpus[rank].facts["driver_version"] = "570.2";
  EXPECT_THAT(
      texts(odd_gpus(gpus)),
      ElementsAre("n0: the GPUs of its ranks 0, 1, 2, 3: driver_version is 580.1, others have 570.2 (nvidia-smi)"));
}

TEST(GpuFacts, ErrorsOfMemoryAreCountedAndNotCompared) {
  std::vector<RankGpu> gpus = two_hosts();
  EXPECT_THAT(gpus_with_errors(gpus), IsEmpty());
  gpus[3].facts[kMemoryErrors] = "2";
  EXPECT_THAT(odd_gpus(gpus), IsEmpty());
  ASSERT_EQ(gpus_with_errors(gpus).size(), 1u);
  EXPECT_THAT(texts(gpus_with_errors(gpus)).front(),
              ::testing::StartsWith("n0: the GPU of its rank 3 has had 2 uncorrectable ECC memory errors"));
}

}  // namespace
}  // namespace shiftron
