// BuildDirectory: where a dataset is built, so that it appears complete or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/directory_lock.h"

namespace shiftron {

// The output directory while it is being filled: everything is in OUTPUT/.building, under a lock, until it is moved in
// place, dataset.json last. A failed build removes what it made. A killed one leaves .building; the next build clears
// it, and with it each dataset.json that .building/published names, unless all of those are in place: then the output
// is complete, and a build of the same request takes it over.
class BuildDirectory {
 public:
  // parts: names of the datasets in `output`, or one empty name for the directory itself. request: a word that differs
  // for other inputs or options. Throws Error(bad_input) if the directory holds anything else, another process works in
  // it, or it cannot be written.
  BuildDirectory(const std::string& output, const std::vector<std::string>& parts, std::string request);
  ~BuildDirectory();
  BuildDirectory(const BuildDirectory&) = delete;
  BuildDirectory& operator=(const BuildDirectory&) = delete;

  // Whether a killed build of the same request published all of it; `note` is the one that it published.
  bool is_there() const { return is_there_; }
  const std::string& note() const { return note_; }

  std::string work(const std::string& part = "") const;  // folder in which a part is built
  std::string target(const std::string& part) const;     // folder to which it is moved

  // Removes the bucket files, which take 4 bytes a token and are not needed once the shards are written.
  void remove_buckets();
  // Moves a finished file out of the part's work folder, under the same name.
  void publish(const std::string& part, const std::string& name);
  // Publishes each part's dataset.json with these bytes. `note`: for a build of the same request.
  void publish_descriptions(const std::vector<std::string>& texts, const std::string& note);
  void commit();  // the last step; a build that is killed before it can be started again

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
