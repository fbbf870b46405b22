// Training in layouts whose ranks are processes that share a device; run under mpirun. Without an argument all layouts
// of that many ranks, otherwise the named one.
#include <cstdlib>
#include <iostream>

#include "cuda/layout_training.h"

int main(int count, char** words) {
  using namespace shiftron;
  MpiSession session;
  try {
    const std::unique_ptr<HostCommunicator> world = session.world();
    setenv("NCCL_HOSTID", std::to_string(world->rank()).c_str(), 1);  // else NCCL refuses them
    int trained = 0;
    for (const shiftron::testing::DeviceLayout& layout : shiftron::testing::device_layouts()) {
      if (layout.ranks != world->size() || (count > 1 && layout.name != words[1])) continue;
      shiftron::testing::check_layout(layout, *world);
      world->barrier();
      if (world->rank() == 0) std::cout << layout.name << ": like one rank of the CPU" << std::endl;
      ++trained;
    }
    CHECK(trained > 0, "no such layout of ", world->size(), " ranks");
  } catch (const Error& error) {
    std::cerr << "rank " << session.rank() << ": " << error.what() << std::endl;
    session.abort(static_cast<int>(error.code()));
  }
  return 0;
}
