// BuildDirectory: where a dataset is built, so that it is there whole or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/directory_lock.h"

namespace shiftron {

// The output directory while it is being filled: everything lies in OUTPUT/.building, under a lock, until it is moved
// in place, dataset.json last. A failed build removes what it made; a killed one leaves .building, which the next one
// clears: with it a dataset.json that .building/published names, unless all that it names are in place. Then the output
// is whole, and a build of the same request takes it as its own.
class BuildDirectory {
 public:
  // parts: names of the datasets in `output`, or one empty name for the directory itself. request: a word that differs
  // where other inputs or options do. Throws Error(bad_input) where something foreign lies in it, another process works
  // in it, or nothing can be written to it.
  BuildDirectory(const std::string& output, const std::vector<std::string>& parts, std::string request);
  ~BuildDirectory();
  BuildDirectory(const BuildDirectory&) = delete;
  BuildDirectory& operator=(const BuildDirectory&) = delete;

  // A killed build of the same request published all of it; `note` is the one that it published.
  bool is_there() const { return is_there_; }
  const std::string& note() const { return note_; }

  std::string work(const std::string& part = "") const;  // folder that a part is built in
  std::string target(const std::string& part) const;     // folder that it is moved to

  // They take 4 bytes a token, and nobody needs them behind the shards.
  void remove_buckets();
  // Moves a finished file out of the part's work folder, under the same name.
  void publish(const std::string& part, const std::string& name);
  // Publishes each part's dataset.json, of these bytes. `note`: words for a build of the same request.
  void publish_descriptions(const std::vector<std::string>& texts, const std::string& note);
  void commit();  // the last act: a build that is killed before it can be given again

 private:
  void lock();
  void look_for_existing();
  void clear_remains();

  std::string output_;
  std::vector<std::string> parts_;
  std::string request_, note_;
  bool existed_ = false, is_there_ = false;
  bool committed_ = false;
  std::optional<DirectoryLock> lock_;
};

}  // namespace shiftron
