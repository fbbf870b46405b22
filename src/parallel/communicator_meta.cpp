// Communicators without peers: a rank that plans alone, and a world of one.
#include "parallel/host_communicator.h"

namespace shiftron {
namespace {

class LonelyCommunicator : public HostCommunicator {
 public:
  LonelyCommunicator(const std::string& name, int rank, int size, bool moves_bytes)
      : RankGroup(name, rank, size), HostCommunicator(name, rank, size), moves_bytes_(moves_bytes) {}

  std::unique_ptr<HostCommunicator> split(const std::vector<int>& members, const std::string& group_name) override {
    const int size = static_cast<int>(members.size());
    return std::make_unique<LonelyCommunicator>(group_name, place_in(members), size, moves_bytes_);
  }

 protected:
  void exchange_all_to_all(const void*, int64_t, void*, int64_t) override { refuse(); }
  void exchange_all_gather(const void*, void*, int64_t) override { refuse(); }
  void exchange_broadcast(void*, int64_t, int) override { refuse(); }
  void exchange_barrier() override { refuse(); }
  void start_send(const void*, int64_t, int) override { refuse(); }
  void wait_for_receivers(int, int) override { refuse(); }
  std::function<void()> start_recv(void*, int64_t, int) override { refuse(); }
  bool moves_bytes() const override { return moves_bytes_; }

 private:
  [[noreturn]] void refuse() const { throw_crash("group ", name(), " has no peers to exchange bytes with"); }
  bool moves_bytes_;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_meta_world(int rank, int ranks) {
  CHECK(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  return std::make_unique<LonelyCommunicator>("world", rank, ranks, false);
}

std::unique_ptr<HostCommunicator> make_single_world() { return std::make_unique<LonelyCommunicator>("world", 0, 1, true); }

}  // namespace shiftron
