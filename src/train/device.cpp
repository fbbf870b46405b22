// Of the CPU what is timed, of CUDA what is started.
#include "train/device.h"

#include "core/has_cuda.h"
#include "core/queue_cuda.h"
#include "parallel/agree.h"
#include "parallel/communicator_nccl_cuda.h"

namespace shiftron {
namespace {

bool is_cuda(const RunConfig& config) { return config.device.kind == DeviceChoice::cuda; }
bool repeats(const RunConfig& config) { return config.train.deterministic == Deterministic::repeat; }

void choose_bfloat16_products(const RunConfig& config, ControlPlane& world, CpuOptions& cpu) {
  if (config.train.precision != Precision::bf16) return;
  if (repeats(config)) {
    cpu.bfloat16_matmul = cpu.bfloat16_tiles = has_bfloat16_products();
    return;
  }
  const bool first = world.rank() == 0;
  std::string choice = "00";
  if (first && bfloat16_matmul_pays(cpu)) choice[0] = '1';
  if (first && bfloat16_tiles_pay(cpu)) choice[1] = '1';
  choice = world.broadcast_text(choice, 0);
  cpu.bfloat16_matmul = choice.at(0) == '1';
  cpu.bfloat16_tiles = choice.at(1) == '1';
}

}  // namespace

std::unique_ptr<Queue> start_device(const RunConfig& config, const HostShare& share, ControlPlane& world,
                                    Stream& stream) {
  stream.cpu.threads = share.threads;
  stream.deterministic = repeats(config);
  std::unique_ptr<Queue> queue;
  if (!is_cuda(config)) {
    choose_bfloat16_products(config, world, stream.cpu);
    return queue;
  }
  CHECK(kHasCuda, "this build has no CUDA");
  all_agree(world, [&] {
    if constexpr (kHasCuda) {
      queue = start_cuda(stream, share);
      share_devices(share, require_devices());
    }
  });
  return queue;
}

Stream planning_stream(const RunConfig& config, int threads, Ledger& ledger) {
  return {.device = DeviceKind::meta,
          .ledger = &ledger,
          .cpu = {.threads = threads},
          .deterministic = repeats(config),
          .planned = is_cuda(config) ? DeviceKind::cuda : DeviceKind::cpu};
}

DType product_type(Precision precision, const CpuOptions& cpu) {
  return precision == Precision::bf16 && cpu.bfloat16_matmul ? DType::bfloat16 : DType::float32;
}

DeviceChoice device_here(DeviceChoice saved) {
  bool usable = false;
  if constexpr (kHasCuda) usable = cuda_devices() > 0;
  return usable ? saved : DeviceChoice::cpu;
}

}  // namespace shiftron
