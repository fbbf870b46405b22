// Streams rows of a source into the files of a step.
#include "checkpoint/step_writer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/boxes.h"
#include "checkpoint/elements.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "kernels/element.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

void refuse_non_finite(DType type, const std::vector<std::byte>& values, const std::string& path) {
  for_type(type, [&](auto element) {
    using Element = decltype(element);
    const auto* value = reinterpret_cast<const Element*>(values.data());
    const size_t count = values.size() / sizeof(Element);
    const bool finite =
        std::all_of(value, value + count, [](Element each) { return std::isfinite(to_accumulate(each)); });
    if (!finite) throw_bad_input(path, " holds a value that is not finite: such a model cannot be used");
  });
}

// Refuses values that were finite and no longer are.
void refuse_overflow(DType from_type, const std::vector<std::byte>& from, DType to_type,
                     const std::vector<std::byte>& to, const std::string& path) {
  for_type(from_type, [&](auto source) {
    for_type(to_type, [&](auto target) {
      const auto* before = reinterpret_cast<const decltype(source)*>(from.data());
      const auto* after = reinterpret_cast<const decltype(target)*>(to.data());
      for (size_t i = 0; i < to.size() / sizeof(target); ++i) {
        if (std::isfinite(to_accumulate(after[i])) || !std::isfinite(to_accumulate(before[i]))) continue;
        throw_bad_input(path, " holds ", to_accumulate(before[i]), ", which is too large for ", name_of(to_type),
                        "; choose another precision");
      }
    });
  });
}

class StepWriter {
 public:
  StepWriter(TensorSource& source, const StepToWrite& step, const std::string& directory,
             const StepWriteOptions& options)
      : source_(source),
        step_(step),
        directory_(directory),
        final_(directory + "/" + step_name(step.content.step)),
        temporary_(final_ + ".tmp"),
        options_(options) {}

  WrittenStep run();

 private:
  void at(const char* point) const {
    if (options_.at_point) options_.at_point(point);
  }
  void find_tensors();
  void prepare() const;
  uint64_t write();
  const void* rows(const BoxOfTensor& box, int64_t first, int64_t count, std::vector<std::byte>& room);

  TensorSource& source_;
  const StepToWrite& step_;
  const std::string directory_, final_, temporary_;
  const StepWriteOptions& options_;
  std::map<std::string, int> indices_;  // of the source's tensors, by path
  std::vector<std::byte> read_;
  uint64_t done_ = 0, total_ = 0;  // bytes of tensors
};

void StepWriter::find_tensors() {
  for (const StepFile& file : step_.files) {
    for (const BoxOfTensor& box : file.boxes) {
      total_ += box.bytes();
      const auto [found, is_new] = indices_.try_emplace(box.tensor.path(), -1);
      if (!is_new) continue;
      found->second = source_.find(box.tensor.group, box.tensor.name);
      if (found->second < 0) throw_bad_input(box.tensor.path(), " is missing in the source");
      const ManifestTensor& there = source_.tensors()[static_cast<size_t>(found->second)];
      if (!(there.shape == box.tensor.shape)) {
        throw_bad_input(box.tensor.path(), " is ", there.shape.text(), " in the source, but must be written as ",
                        box.tensor.shape.text());
      }
    }
  }
}

void StepWriter::prepare() const {
  at("begin");
  create_directories_durably(directory_);
  if (fs::exists(fs::symlink_status(final_))) {
    throw_bad_input(final_, " already exists, and nothing is overwritten: choose another place");
  }
  fs::remove_all(temporary_);
  at("swept");
  uint64_t bytes = most_bytes(step_.content);
  for (const StepFile& file : step_.files) bytes += most_bytes(file, options_.block_bytes);
  require_space(directory_, bytes, "free space there, or choose another place");
  fs::create_directory(temporary_);
  fsync_directory(directory_);
  at("directory made");
}

// Rows in the type that is written.
const void* StepWriter::rows(const BoxOfTensor& box, int64_t first, int64_t count, std::vector<std::byte>& room) {
  Box some = box.box;
  some.offset[0] += first;
  some.extent[0] = count;
  const int index = indices_.at(box.tensor.path());
  const DType there = source_.tensors()[static_cast<size_t>(index)].dtype;
  read_elements(source_, index, some, box.tensor.dtype, room, read_);
  if (there != box.tensor.dtype) refuse_overflow(there, read_, box.tensor.dtype, room, box.tensor.path());
  if (options_.only_finite) refuse_non_finite(box.tensor.dtype, room, box.tensor.path());
  done_ += room.size();
  if (options_.progress) options_.progress(done_, total_);
  if (options_.each_rows) options_.each_rows(box.tensor, room.data(), count);
  return room.data();
}

uint64_t StepWriter::write() {
  std::vector<Manifest> parts;
  for (const StepFile& file : step_.files) {
    parts.push_back(write_file(
        temporary_, file, {.block_bytes = options_.block_bytes, .threads = options_.threads},
        [&](size_t index, int64_t first, int64_t count, std::vector<std::byte>& room) {
          return rows(file.boxes[index], first, count, room);
        },
        [this](const char* point) { at(point); }));
  }
  Manifest manifest = merge(parts);
  manifest.writer = step_.writer;
  return commit_step(temporary_, final_, std::move(manifest), step_.content, options_.before_commit,
                     [this](const char* point) { at(point); });
}

WrittenStep StepWriter::run() {
  CHECK(step_.content.step >= 0 && !step_.files.empty(), "step ", step_.content.step, " of no files");
  find_tensors();
  try {
    prepare();
    const uint64_t bytes = write();
    return {.directory = final_, .bytes = bytes};
  } catch (...) {
    std::error_code ignored;  // what stays is removed by the next attempt
    fs::remove_all(temporary_, ignored);
    throw;
  }
}

}  // namespace

std::vector<StepFile> one_file(const std::vector<ManifestTensor>& tensors) {
  StepFile file{.name = rank_file_name(0), .boxes = {}};
  for (const ManifestTensor& tensor : tensors) file.boxes.push_back({tensor, whole_box(tensor.shape)});
  return {file};
}

WrittenStep write_step(TensorSource& source, const StepToWrite& step, const std::string& directory,
                       const StepWriteOptions& options) {
  return StepWriter(source, step, directory, options).run();
}

}  // namespace shiftron
