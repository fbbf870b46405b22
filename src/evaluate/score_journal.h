// ScoreJournal: answers that outlive a killed evaluation, as lines of files to which each rank appends.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/file.h"
#include "parallel/control_plane.h"

namespace shiftron {

class ScoreJournal {
 public:
  // Makes `directory` where it is missing, and reads what lies there: the same on every rank, which all call it. Lines
  // that are torn, or whose checksum differs, are left out. Throws Error(bad_input) where a file cannot be read.
  ScoreJournal(const std::string& directory, ControlPlane& world);
  // What was appended before this journal was opened; null: nothing.
  const std::string* find(const std::string& key) const;
  // Neither holds white space.
  void append(const std::string& key, const std::string& value);
  int64_t known() const { return static_cast<int64_t>(known_.size()); }

 private:
  std::string path_;  // of this rank
  std::map<std::string, std::string> known_;
  FileDescriptor file_;
};

}  // namespace shiftron
