// Widths are counted in characters; cells of one column are as wide as the widest that is shown.
#include "plan/layout_picture.h"

#include <algorithm>
#include <map>

#include "parallel/pipeline.h"
#include "plan/virtual_stages.h"

namespace shiftron {
namespace {

constexpr size_t kColumns = 80, kLabel = 50;
constexpr int kStages = 9, kHosts = 8;  // rows
constexpr int kLeftOut = -1;
const std::string kEllipsis = "…";

size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

// Cuts the text with an ellipsis if it is too long, and removes blanks at its end.
std::string clipped(std::string text, size_t columns) {
  text.erase(text.find_last_not_of(' ') + 1);
  if (width(text) <= columns) return text;
  while (width(text) >= columns) {
    while ((text.back() & 0xC0) == 0x80) text.pop_back();
    text.pop_back();
  }
  return text + kEllipsis;
}

// Which of `count` things are shown in `room` places (three or more); kLeftOut stands for the rest.
std::vector<int> shown(int count, int room) {
  std::vector<int> all;
  const int first = count <= room ? count : room / 2;
  for (int i = 0; i < first; ++i) all.push_back(i);
  if (count <= room) return all;
  all.push_back(kLeftOut);
  for (int i = count - (room - first - 1); i < count; ++i) all.push_back(i);
  return all;
}

// All parts, or the first two and the last.
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool gap = parts.size() > 3 && i == parts.size() - 1;
    if (parts.size() > 3 && i >= 2 && !gap) continue;
    text += (gap ? " " + kEllipsis + " " : i > 0 ? ", " : "") + parts[i];
  }
  return text;
}

std::string interval(int64_t first, int64_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

// "0-3, 8-11" for ascending numbers.
std::string intervals(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(interval(numbers[i], numbers[end - 1]));
    i = end;
  }
  return joined(parts);
}

// Ranks by host, hosts by their first rank.
class Hosts {
 public:
  explicit Hosts(const std::vector<std::string>& of_rank) {
    std::map<std::string, int> numbers;
    for (size_t rank = 0; rank < of_rank.size(); ++rank) {
      const auto [found, is_new] = numbers.try_emplace(of_rank[rank], static_cast<int>(names_.size()));
      if (is_new) {
        names_.push_back(of_rank[rank]);
        ranks_.emplace_back();
      }
      ranks_[static_cast<size_t>(found->second)].push_back(static_cast<int>(rank));
      host_of_.push_back(found->second);
    }
  }
  int count() const { return static_cast<int>(names_.size()); }

  // a, b, …, z, aa, ab, …
  static std::string letter(int host) {
    const std::string last(1, static_cast<char>('a' + host % 26));
    return host < 26 ? last : letter(host / 26 - 1) + last;
  }

  // " a", " a+b", " a…f" for these ranks; "" if all ranks are on one host.
  std::string letters(const std::vector<int>& ranks) const {
    if (count() < 2) return "";
    std::vector<int> hosts;
    for (const int rank : ranks) hosts.push_back(host_of_[static_cast<size_t>(rank)]);
    std::ranges::sort(hosts);
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    const std::string between = hosts.size() == 2 ? "+" : kEllipsis;
    return " " + letter(hosts.front()) + (hosts.size() > 1 ? between + letter(hosts.back()) : "");
  }

  std::string text() const {
    if (count() == 1) return clipped("all on host " + names_[0], kColumns) + "\n";
    std::string text;
    for (const int host : shown(count(), kHosts)) {
      if (host == kLeftOut) {
        text += kEllipsis + "\n";
        continue;
      }
      const auto at = static_cast<size_t>(host);
      const std::string ranks = ": ranks " + intervals(ranks_[at]), left = "host " + letter(host) + "  ";
      const size_t room = kColumns - std::min(kColumns / 2, width(left) + width(ranks));
      text += clipped(left + clipped(names_[at], room) + ranks, kColumns) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<int>> ranks_;
  std::vector<int> host_of_;  // each rank
};

// "embedding, layers 0-3, 12-15" for each stage.
std::vector<std::string> contents(const RunConfig& config) {
  const Schedule schedule = schedule_of(config);
  const std::vector<Range> layers = virtual_stage_layers(config);
  std::vector<std::string> texts;
  for (int stage = 0; stage < config.parallel.pp; ++stage) {
    std::vector<std::string> pieces;
    bool embedding = false, head = false, several = chunks_of(schedule) > 1;
    for (int chunk = 0; chunk < chunks_of(schedule); ++chunk) {
      const auto at = static_cast<size_t>(virtual_stage(schedule, config.parallel.pp, stage, chunk));
      pieces.push_back(interval(layers[at].begin, layers[at].end - 1));
      several = several || layers[at].size() > 1;
      embedding = embedding || at == 0;
      head = head || at == layers.size() - 1;
    }
    texts.push_back((embedding ? "embedding, " : "") + std::string(several ? "layers " : "layer ") + joined(pieces) +
                    (head ? ", head" : ""));
  }
  return texts;
}

}  // namespace

std::string layout_picture(const RunConfig& config, const ParallelLayout& layout,
                           const std::vector<std::string>& hosts_of_ranks) {
  const Hosts hosts(hosts_of_ranks);
  const std::vector<std::string> held = contents(config);
  const std::vector<int> stages = shown(layout.pp, kStages);
  // The text for all ranks of one stage and one copy.
  const auto cell = [&](int stage, int copy) {
    std::vector<int> ranks;
    for (int cp = 0; cp < layout.cp; ++cp) {
      for (int tp = 0; tp < layout.tp; ++tp)
        ranks.push_back(layout.rank({.tp = tp, .cp = cp, .dp = copy, .pp = stage}));
    }
    std::ranges::sort(ranks);
    return intervals(ranks) + hosts.letters(ranks);
  };
  const auto label = [&](int stage) {
    if (stage == kLeftOut) return kEllipsis;
    return clipped("stage " + std::to_string(stage) + "  " + held[static_cast<size_t>(stage)], kLabel);
  };
  size_t left = 0, column = width("dp " + std::to_string(layout.dp - 1));
  for (const int stage : stages) {
    left = std::max(left, width(label(stage)));
    if (stage == kLeftOut) continue;
    for (const int copy : {0, layout.dp - 1}) column = std::max(column, width(cell(stage, copy)));
  }
  const auto copies_of = [&](size_t columns) { return static_cast<int>(columns / (column + 2)); };
  const bool all_fit = layout.dp <= copies_of(kColumns - left);
  const size_t ellipsis = kEllipsis.size();  // 3 bytes; with two blanks it is 3 columns wide
  const std::vector<int> copies =
      shown(layout.dp, all_fit ? layout.dp : std::max(3, 1 + copies_of(kColumns - left - ellipsis)));
  std::string text = padded("", left);
  for (const int copy : copies) {
    text += "  " + (copy == kLeftOut ? kEllipsis : padded("dp " + std::to_string(copy), column));
  }
  text = clipped(text, kColumns) + "\n";
  for (const int stage : stages) {
    std::string line = padded(label(stage), left);
    for (const int copy : copies) {
      if (stage != kLeftOut) line += "  " + (copy == kLeftOut ? kEllipsis : padded(cell(stage, copy), column));
    }
    text += clipped(line, kColumns) + "\n";
  }
  return hosts.count() == 0 ? text : text + hosts.text();
}

std::string host_warning(const ParallelLayout& layout, const std::vector<std::string>& hosts) {
  if (hosts.empty()) return "";
  int groups = 0, divided = 0;
  std::string first;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    if (layout.coordinates(rank).tp != 0) continue;
    ++groups;
    const std::vector<int> members = layout.group(rank, Axis::tp);
    const auto host = [&](int member) { return hosts[static_cast<size_t>(member)]; };
    const auto other = std::ranges::find_if(members, [&](int member) { return host(member) != host(rank); });
    if (other == members.end()) continue;
    if (divided++ == 0) {
      first = "rank " + std::to_string(rank) + " on " + host(rank) + ", rank " + std::to_string(*other) + " on " +
              host(*other);
    }
  }
  if (divided == 0) return "";
  return std::to_string(divided) + " of " + std::to_string(groups) + " tensor-parallel groups span several hosts (" +
         first +
         "): every layer waits for the network; check parallel.tp, parallel.rank_order and how the launcher places "
         "ranks";
}

}  // namespace shiftron
