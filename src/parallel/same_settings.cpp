// Sends hashes of all ranks to rank 0, and the lists of the first ranks that differ.
#include "parallel/same_settings.h"

#include <algorithm>
#include <sstream>

#include "core/hash.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

constexpr size_t kNamedRanks = 2;    // of those that differ
constexpr size_t kNamedKeys = 6;     // of a rank
constexpr size_t kShownBytes = 300;  // of a value

// Keys and values, each after its length, so that different lists give different texts. Empty values are left out.
std::string packed(const std::vector<RankSetting>& given) {
  std::string text;
  for (const RankSetting& one : given) {
    if (one.value.empty()) continue;
    for (const std::string* part : {&one.key, &one.value}) text += std::to_string(part->size()) + ":" + *part;
  }
  return text;
}

std::vector<RankSetting> unpacked(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t colon = text.find(':', at);
    const size_t length = std::stoul(text.substr(at, colon - at));
    parts.push_back(text.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  std::vector<RankSetting> given;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) given.push_back({parts[i], parts[i + 1]});
  return given;
}

// The ranks to name: the first whose hash is not rank 0's, then the first with a third hash, or else the next different
// one.
std::vector<int> ranks_to_name(const std::vector<std::string>& hashes, size_t& different) {
  std::vector<int> ranks;  // that differ
  for (int rank = 1; rank < static_cast<int>(hashes.size()); ++rank) {
    if (hashes[static_cast<size_t>(rank)] != hashes.front()) ranks.push_back(rank);
  }
  different = ranks.size();
  if (ranks.size() <= kNamedRanks) return ranks;
  const auto other = std::ranges::find_if(
      ranks, [&](int rank) { return hashes[static_cast<size_t>(rank)] != hashes[static_cast<size_t>(ranks.front())]; });
  return {ranks.front(), other == ranks.end() ? ranks[1] : *other};
}

std::string shown(const std::string& value) {
  if (value.empty()) return "nothing";
  return value.size() <= kShownBytes ? value : value.substr(0, kShownBytes) + "…";
}

const std::string& value_of(const std::vector<RankSetting>& given, const std::string& key) {
  static const std::string nothing;
  const auto found = std::ranges::find(given, key, &RankSetting::key);
  return found == given.end() ? nothing : found->value;
}

// "rank 2 on node7 has train.seed=2, rank 0 on node1 has 1", a line for each key.
std::string differences(const std::vector<RankSetting>& first, const std::string& place,
                        const std::vector<RankSetting>& theirs, const std::string& their_place) {
  std::vector<RankSetting> all = first;  // the keys of both
  for (const RankSetting& one : theirs) {
    if (std::ranges::find(first, one.key, &RankSetting::key) == first.end()) all.push_back(one);
  }
  std::string text;
  size_t differ = 0;
  for (const RankSetting& one : all) {
    const std::string& here = value_of(first, one.key);
    const std::string& there = value_of(theirs, one.key);
    if (here == there || ++differ > kNamedKeys) continue;
    text += "\n  " + their_place + " has " + one.key + "=" + shown(there) + ", but " + place + " has " + shown(here);
  }
  if (differ > kNamedKeys) text += "\n  and " + std::to_string(differ - kNamedKeys) + " more keys of this rank differ";
  return text;
}

}  // namespace

void require_same_settings(ControlPlane& world, const std::vector<RankSetting>& given) {
  if (world.size() == 1) return;
  const std::string own = packed(given);
  const std::vector<std::string> hashes = world.gather_text(to_hex(xxh3_128(own)), 0);
  size_t different = 0;
  std::string named;  // one rank per line
  for (const int rank : ranks_to_name(hashes, different)) named += std::to_string(rank) + "\n";
  named = world.broadcast_text(named, 0);
  if (named.empty()) return;
  std::string text;
  size_t reported = 0;
  std::istringstream ranks(named);
  for (std::string line; std::getline(ranks, line); ++reported) {
    const int rank = std::stoi(line);
    const std::string place = world.broadcast_text(place_of(world.rank()), rank);
    const std::string theirs = world.broadcast_text(own, rank);
    if (world.rank() == 0) text += differences(given, place_of(world.rank()), unpacked(theirs), place);
  }
  if (world.rank() != 0) end_without_report(ExitCode::bad_input);
  if (different > reported)
    text += "\n  and " + std::to_string(different - reported) + " more ranks differ from rank 0";
  throw_bad_input("the ranks were started with different settings:", text,
                  "\nStart all ranks with the same command line, and put files on a file system that all hosts share. "
                  "Usual causes: a copy of a file on each host, a file that was edited while the ranks started, a "
                  "stale cache of a network file system.");
}

}  // namespace shiftron
