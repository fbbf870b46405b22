// Reports a fault once, also if several ranks see it.
#pragma once

#include <functional>

#include "core/check.h"
#include "parallel/control_plane.h"

namespace shiftron {

// Ends this rank with `code` while another one reports why: throws an Error with an empty message, after a short delay,
// because a launcher ends all ranks when the first one has left.
[[noreturn]] void end_without_report(ExitCode code);

// "rank 2 on node7": a rank of this host, for messages.
std::string place_of(int rank);

// Every rank runs `work`, which must not communicate. If it fails anywhere, every rank throws the code of the
// first failing rank: rank 0 with that one's message and its place_of(), the others with an empty message.
void run_on_all_ranks(ControlPlane& world, const std::function<void()>& work);

// Only rank 0 runs `check`; if it fails, all ranks throw as above.
void run_on_first_rank(ControlPlane& world, const std::function<void()>& check);

// For `work` that communicates and throws on all ranks an error that rank 0 has sent: only rank 0 reports it. A rank
// that sees a crash or a lost peer reports that too. Check for other errors of single ranks in run_on_all_ranks(): here
// they would be lost.
void report_on_first_rank(const ControlPlane& world, const std::function<void()>& work);

// The texts of all ranks, concatenated in rank order, on every rank.
std::string joined_texts(ControlPlane& world, const std::string& own);

// Each different text of the ranks once, on every rank, those of lower ranks first. For texts that are mostly the same.
std::vector<std::string> different_texts(ControlPlane& world, const std::string& own);

// The ranks that pass the same line as this one.
struct MatchingRanks {
  int count = 1;
  int place = 0;  // of this rank among them
};
MatchingRanks find_matching_ranks(ControlPlane& world, const std::string& line);

}  // namespace shiftron
