// One voice for a fault that several ranks see.
#pragma once

#include <functional>

#include "core/check.h"
#include "parallel/control_plane.h"

namespace shiftron {

// Ends this rank with `code` while another one tells why: throws an Error with an empty message, but only after a
// moment, because a launcher ends all ranks when the first one has left.
[[noreturn]] void leave_to_another(ExitCode code);

// "rank 2 on node7": a rank of this host, for messages.
std::string place_of(int rank);

// Every rank runs `work`, which must not communicate. If it fails anywhere, every rank throws the code of the
// first failing rank: rank 0 with that one's message and its place_of(), the others with an empty message.
void all_agree(ControlPlane& world, const std::function<void()>& work);

// Rank 0 alone runs `check`; where it fails, all throw as above.
void first_agrees(ControlPlane& world, const std::function<void()>& check);

// For `work` that communicates and throws what rank 0 has sent to all: rank 0 alone reports it. A crash and a lost peer
// may be one rank's, which reports them. What one rank may find alone belongs into all_agree(): here it would be lost.
void told_by_first(const ControlPlane& world, const std::function<void()>& work);

// What each rank says, one behind the other, on every rank.
std::string joined_texts(ControlPlane& world, const std::string& own);

// What ranks say who mostly say the same: each text once, on every rank, those of lower ranks first.
std::vector<std::string> different_texts(ControlPlane& world, const std::string& own);

// The ranks that say the same line as this one.
struct RanksAlike {
  int count = 1;
  int place = 0;  // of this rank among them
};
RanksAlike ranks_alike(ControlPlane& world, const std::string& line);

}  // namespace shiftron
