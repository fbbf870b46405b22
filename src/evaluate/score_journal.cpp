// Lines "key value checksum".
#include "evaluate/score_journal.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "core/hash.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

constexpr const char* kBegin = "answers-";
constexpr const char* kEnd = ".txt";

std::string checksum(const std::string& key, const std::string& value) {
  return to_hex(xxh3_64(key + " " + value));
}

// The contents of all files, in the order of their names.
std::string read_all(const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kBegin) && name.ends_with(kEnd)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::string text;
  for (const std::string& path : paths) text += read_file(path) + "\n";
  return text;
}

}  // namespace

ScoreJournal::ScoreJournal(const std::string& directory, ControlPlane& world)
    : path_(directory + "/" + kBegin + std::to_string(world.rank()) + kEnd) {
  std::string text;
  run_on_all_ranks(world, [&] {
    if (world.rank() == 0) text = read_all(directory);
  });
  std::istringstream lines(world.broadcast_text(text, 0));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, value, check, more;
    words >> key >> value >> check;
    if (check.empty() || words >> more || check != checksum(key, value)) continue;
    known_[key] = value;
  }
}

const std::string* ScoreJournal::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : &found->second;
}

void ScoreJournal::append(const std::string& key, const std::string& value) {
  std::string line = key + " " + value + " " + checksum(key, value) + "\n";
  if (!file_.is_open()) {
    file_ = FileDescriptor::open_for_appending(path_);
    line = "\n" + line;  // a killed writer may have left an incomplete last line
  }
  file_.append(line.data(), line.size());
}

}  // namespace shiftron
