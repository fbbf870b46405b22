// Checks a rank's device: that it starts, multiplies correctly, and reaches its groups.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/host.h"
#include "kernels/libraries.h"
#include "parallel/host_communicator.h"
#include "parallel/watchdog.h"
#include "preflight/gpu_facts.h"
#include "train/device.h"

namespace shiftron {

// Called as each part begins; `own`: its deadline if that is not the usual one.
using BeginPart = std::function<void(const std::string& part, std::optional<Deadline> own)>;

// One rank's device and its libraries. Failures are kept in fault() and not thrown.
class DeviceCheck {
 public:
  // Every rank of `world` calls it.
  DeviceCheck(const RunConfig& config, const HostShare& share, HostCommunicator& world, const BeginPart& begin);

  // Sums over each group that this rank is in, and sends a message over each of its channels. Every rank calls it, and
  // only if the devices of all work. If a peer is missing, the rank hangs in that part.
  void sum_over_groups(const BeginPart& begin);

  bool all_work() const { return all_work_; }  // the devices of all ranks
  const std::string& fault() const { return fault_; }
  const std::string& device() const { return started_.identity.uuid; }  // which GPU; "" on a CPU
  const GpuFacts& facts() const { return facts_; }
  int64_t wrong_products() const { return wrong_products_; }
  double operations() const { return operations_; }  // per second, of products

 private:
  void attempt(const std::function<void()>& work);
  void agree_on_devices();

  const RunConfig& config_;
  HostCommunicator& world_;
  Ledger ledger_;
  Stream stream_{.ledger = &ledger_};
  StartedDevice started_;
  std::optional<Libraries> libraries_;
  GpuFacts facts_;
  std::string fault_;
  bool all_work_ = false;
  int64_t wrong_products_ = 0;
  double operations_ = 0;
};

}  // namespace shiftron
