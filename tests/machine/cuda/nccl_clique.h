// Where the ranks of a communicator meet, as one rank sees it. Only included by files that are not instrumented.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "machine/cuda/nccl.h"
#include "machine/cuda/nccl_segment.h"

namespace shiftron::machine {

class Clique {
 public:
  Clique(std::shared_ptr<Segment> segment, int rank, int size, const NcclOptions& options);

  enum class Joined { all, not_all, two_on_one_device };
  // Returns when all ranks have come, or will not come; `details` gets the reason.
  Joined join(uint64_t host, int device, std::string& details);

  // On the host, before calls are handed over: NCCL connects two ranks for messages of one direction at the first, and
  // each host waits for the other's. False if a peer does not come; `details` gets the reason.
  bool connect(const std::vector<NcclCall>& calls, std::string& details);

  // In an operation of the rank's stream: returns when all calls are done, or the rank's communicator was aborted.
  void perform(const std::vector<NcclCall>& calls);
  void leave();  // nothing is under way
  void abort();
  bool peer_is_lost();  // as far as NCCL would know
  bool spans_processes();

  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  Seat& seat(int rank) { return table_.seats[rank]; }
  const NcclCall* collective(int rank);
  void post(const std::vector<NcclCall>& calls);
  void take_results(const std::vector<NcclCall>& calls);
  void keep_going();
  void find_misfit(int other);
  bool move_messages(int from, int to);
  void meet();
  std::vector<int> order_of_sum(const NcclCall& call, size_t piece);
  std::string told_by(int rank);

  const std::shared_ptr<Segment> segment_;
  Table& table_;
  const int rank_, size_;
  const NcclOptions options_;
};

}  // namespace shiftron::machine
