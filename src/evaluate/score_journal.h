// ScoreJournal keeps answers across a killed evaluation. Each rank appends lines to its own file.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/file.h"
#include "parallel/control_plane.h"

namespace shiftron {

class ScoreJournal {
 public:
  // Creates `directory` if it is missing and reads all its files. All ranks call it and get the same answers.
  // Incomplete lines and lines with a wrong checksum are ignored. Throws Error(bad_input) if a file cannot be read.
  ScoreJournal(const std::string& directory, ControlPlane& world);
  // The value that was appended before this journal was opened; null if there is none.
  const std::string* find(const std::string& key) const;
  // Neither may contain white space.
  void append(const std::string& key, const std::string& value);
  int64_t known() const { return static_cast<int64_t>(known_.size()); }

 private:
  std::string path_;  // of this rank
  std::map<std::string, std::string> known_;
  FileDescriptor file_;
};

}  // namespace shiftron
