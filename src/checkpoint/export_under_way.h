// ExportUnderWay: what an export writes has no name of its own until it is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/file_lock.h"

namespace shiftron {

// The directory NAME.tmp, empty but for its mark, which is locked: of two exports at once the later one is refused,
// with these words. What a killed one left is swept: such a directory, also beside NAME where that is whole, an empty
// one, or NAME with the mark still in it. What this one did not finish is removed at its end. An export that is killed
// before it has printed its result is repeated by the same command.
class ExportUnderWay {
 public:
  // `named`: the directory or the file that the export will be, slashes at its end left out. Makes the folders above
  // it, durably. Throws Error(bad_input): it is there, or would lie in a step; NAME.tmp is something else, or another
  // export is running.
  explicit ExportUnderWay(const std::string& named);
  ~ExportUnderWay();
  ExportUnderWay(const ExportUnderWay&) = delete;
  ExportUnderWay& operator=(const ExportUnderWay&) = delete;

  const std::string& name() const { return name_; }
  const std::string& directory() const { return temporary_; }  // to write in
  static bool is_mark(const std::string& file);                // one of the directory's that the export will not have
  // The directory gets the name; after `tell`, which is to tell the result, it holds the export alone. Durable; throws
  // Error(crash), or Error(bad_input) where something else has got the name.
  void finish(const std::function<void()>& tell = {});
  // As finish(), the file alone, by its name in the directory.
  void finish_file(const std::string& file, const std::function<void()>& tell = {});

 private:
  void take();            // the directory with its mark
  void take_back();       // NAME, which a killed export left with its mark
  bool take_back_file();  // NAME, a file whose number a killed export left; false where it did not
  void sweep();           // all but the mark
  void remove();          // all of it
  void remove_remains();  // beside NAME, of which nobody makes more

  const std::string name_, temporary_;
  std::optional<FileLock> lock_;
};

// Throws Error(crash) where the disk of `directory` has less room than the `bytes` that are known of an export.
void require_room_for_export(const std::string& directory, uint64_t bytes);

}  // namespace shiftron
