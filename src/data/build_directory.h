// BuildDirectory: where a dataset is built, so that it appears complete or not at all.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/directory_lock.h"
#include "data/build_request.h"

namespace shiftron {

// The output directory while it is being filled: everything is in OUTPUT/.building, under a lock, until it is moved in
// place, dataset.json last. A failed build removes what it made, and nothing else. A killed one leaves .building, and
// the next build of the same request continues: from what was saved, or, if the files were about to be moved
// (.building/published names each dataset.json), by moving the rest. If nothing was saved, the next build clears what
// is left and starts over.
class BuildDirectory {
 public:
  // parts: names of the datasets in `output`, or one empty name for the directory itself. Throws Error(bad_input) if
  // the directory holds anything else, or what another request saved; if another process works in it; or if it cannot
  // be written.
  BuildDirectory(const std::string& output, const std::vector<std::string>& parts, const BuildRequest& request);
  ~BuildDirectory();
  BuildDirectory(const BuildDirectory&) = delete;
  BuildDirectory& operator=(const BuildDirectory&) = delete;

  // Whether a killed build of the same request published all of it; `note` is the one that it published.
  bool is_there() const { return is_there_; }
  const std::string& note() const { return note_; }
  // What a killed build of the same request gave to save(); null if there is none, or if it is_there().
  const std::string* saved() const { return saved_ ? &*saved_ : nullptr; }
  // Whether a killed build left files of which it had saved nothing. They were removed.
  bool has_cleared() const { return has_cleared_; }

  std::string work(const std::string& part = "") const;  // folder in which a part is built
  std::string target(const std::string& part) const;     // folder to which it is moved

  // Saves for a build of the same request that may follow. All files in the work folders that it needs must be durable;
  // their names need not be.
  void save(const std::string& text);
  // Moves the shards, tokenizers and each part's dataset.json, with these bytes, out of the work folders. First it
  // removes the bucket files, which take 4 bytes a token. `note`: for a build of the same request.
  void publish(const std::vector<std::string>& texts, const std::string& note);
  void commit();  // the last step; a build that is killed before it can be started again

 private:
  void lock();
  void look_for_existing();
  void refuse_other_request() const;
  bool is_complete(std::set<std::string> hashes) const;
  void remove_buckets();
  void move(const std::string& part, const std::string& name);
  void move_all();
  void clear_work();
  void clear_targets();

  std::string output_;
  std::vector<std::string> parts_;
  BuildRequest request_;
  std::string note_;
  std::optional<std::string> saved_;
  bool existed_ = false, is_there_ = false, has_cleared_ = false, has_saved_ = false;
  bool has_published_ = false;  // this build or a killed one: files in the output may be its own
  bool committed_ = false;
  std::optional<DirectoryLock> lock_;
};

}  // namespace shiftron
