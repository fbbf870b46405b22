// BuildDirectory: where a dataset is built, so that it is there whole or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/directory_lock.h"

namespace shiftron {

// The output directory while it is being filled: everything lies in OUTPUT/.building, under a lock, until it is moved
// in place, dataset.json last. A failed build removes what it made; a killed one leaves .building, which the next one
// clears: with it a dataset.json that .building/published names, unless all that it names are in place.
class BuildDirectory {
 public:
  // parts: names of the datasets in `output`, or one empty name for the directory itself. Throws Error(bad_input) where
  // something foreign lies in it, another process works in it, or nothing can be written to it.
  BuildDirectory(const std::string& output, const std::vector<std::string>& parts);
  ~BuildDirectory();
  BuildDirectory(const BuildDirectory&) = delete;
  BuildDirectory& operator=(const BuildDirectory&) = delete;

  std::string work(const std::string& part = "") const;  // folder that a part is built in
  std::string target(const std::string& part) const;     // folder that it is moved to

  // They take 4 bytes a token, and nobody needs them behind the shards.
  void remove_buckets();
  // Moves a finished file out of the part's work folder, under the same name.
  void publish(const std::string& part, const std::string& name);
  // Publishes each part's dataset.json, of these bytes.
  void publish_descriptions(const std::vector<std::string>& texts);
  void commit();

 private:
  void lock();
  void refuse_existing() const;
  void clear_remains();

  std::string output_;
  std::vector<std::string> parts_;
  bool existed_ = false;
  bool committed_ = false;
  std::optional<DirectoryLock> lock_;
};

}  // namespace shiftron
