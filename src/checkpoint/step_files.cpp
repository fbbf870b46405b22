// Writes files of a step with HDF5, hashed as they are written; manifest and renames.
#include "checkpoint/step_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/file_hashes.h"
#include "checkpoint/step_size.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/helper_thread.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// XXH3-64 of every block of bytes that arrive in pieces; the last block may be shorter.
class BlockHashes {
 public:
  explicit BlockHashes(uint64_t block_bytes) : block_bytes_(block_bytes) {}
  void update(const void* data, uint64_t bytes) {
    const auto* at = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const uint64_t some = std::min(bytes, block_bytes_ - filled_);
      if (filled_ == 0 && some == block_bytes_) {
        hashes_.push_back(xxh3_64(at, some));
      } else {
        stream_.update(at, some);
        filled_ += some;
        if (filled_ == block_bytes_) end_block();
      }
      at += some;
      bytes -= some;
    }
  }
  std::vector<uint64_t> finish() {
    if (filled_ > 0) end_block();
    return std::move(hashes_);
  }

 private:
  void end_block() {
    hashes_.push_back(stream_.digest_64());
    stream_ = HashStream();
    filled_ = 0;
  }
  const uint64_t block_bytes_;
  uint64_t filled_ = 0;
  HashStream stream_;
  std::vector<uint64_t> hashes_;
};

// Writes the boxes of a file in groups of rows that together hold about a block. Rows are made and hashed here while a
// helper thread writes the previous ones and makes the disk begin with them, so that little is left for the sync.
class BoxWriter {
 public:
  BoxWriter(Hdf5File& file, const FileDescriptor& written, const WriteOptions& options)
      : file_(file), written_(written), options_(options), helper_(options.threads > 1) {}

  // Returns the hashes of blocks. The last rows may not be written yet.
  std::vector<uint64_t> write(const std::string& dataset, const BoxOfTensor& box, size_t index,
                              const RowsOfBox& rows_of) {
    std::vector<int64_t> shape;
    for (int dim = 0; dim < box.box.extent.dims(); ++dim) shape.push_back(box.box.extent[dim]);
    file_.create_dataset(dataset, stored_type(box.tensor.dtype), shape);
    if (box.tensor.dtype == DType::bfloat16) file_.set_attribute(dataset, kTypeAttribute, name_of(box.tensor.dtype));
    const int64_t row = static_cast<int64_t>(box.bytes()) / shape[0];  // bytes
    const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(options_.block_bytes) / row);
    BlockHashes hashes(options_.block_bytes);
    for (int64_t at = 0; at < shape[0]; at += most) {
      const int64_t count = std::min(most, shape[0] - at);
      const void* values = rows_of(index, at, count, rooms_[next_]);
      next_ = 1 - next_;  // the other one has been written when start() returns
      hashes.update(values, static_cast<uint64_t>(count * row));
      helper_.start([this, dataset, at, count, values] {
        file_.write_range(dataset, at, count, values);
        written_.start_writing();
      });
    }
    return hashes.finish();
  }
  void finish() { helper_.finish(); }

 private:
  Hdf5File& file_;
  const FileDescriptor& written_;
  const WriteOptions& options_;
  std::vector<std::byte> rooms_[2];
  size_t next_ = 0;
  HelperThread helper_;  // last: it ends before what it uses
};

// Checks that the disk holds what was written; fills in offsets and the file's hash.
void read_back(const FileDescriptor& file, Manifest& part, int threads) {
  {
    const Hdf5File view = Hdf5File::open(file.path());
    for (ManifestBox& box : part.boxes) box.byte_offset = view.info(part.dataset(box)).byte_offset;
  }
  std::vector<const ManifestBox*> order;
  for (const ManifestBox& box : part.boxes) order.push_back(&box);
  std::sort(order.begin(), order.end(),
            [](const ManifestBox* a, const ManifestBox* b) { return a->byte_offset < b->byte_offset; });
  std::vector<Segment> segments;
  for (const ManifestBox* box : order) segments.push_back({box->byte_offset, box->bytes});
  const FileHashes hashes = hash_file(file, segments, part.block_bytes, {}, threads);
  for (size_t i = 0; i < order.size(); ++i) {
    if (hashes.blocks[i] != order[i]->block_hashes) {
      throw_crash(file.path(), ": ", part.dataset(*order[i]), " does not read back as written");
    }
  }
  part.files.front().bytes = file.size();
  part.files.front().hash = hashes.whole;
}

void write_synced(const std::string& path, const std::string& bytes) {
  FileDescriptor file = FileDescriptor::create(path);
  file.append(bytes.data(), bytes.size());
  file.sync();
  file.close();
}

// The file, its tensors and its boxes, without offsets and hashes.
Manifest describe(const StepFile& file, uint64_t block_bytes) {
  Manifest part;
  part.block_bytes = block_bytes;
  if (file.boxes.empty()) return part;
  part.files.push_back({file.name, 0, {}});
  std::map<std::string, int> tensors;
  for (const BoxOfTensor& box : file.boxes) {
    const auto [found, is_new] = tensors.try_emplace(box.tensor.path(), static_cast<int>(part.tensors.size()));
    if (is_new) part.tensors.push_back(box.tensor);
    part.boxes.push_back({.tensor = found->second, .box = box.box, .bytes = box.bytes(), .block_hashes = {}});
  }
  return part;
}

// Throws if no reader would accept the step.
void require_readable(const std::string& temporary, const Manifest& manifest, const std::string& text) {
  const std::string fault = first_file_fault(temporary, manifest);
  if (!fault.empty()) {
    throw_crash(fault,
                "; all hosts that write a step must see the same directory: put it on a file system that they share");
  }
  if (text.size() > kLargestManifest) {
    throw_crash("the manifest would have ", text.size(), " bytes, but at most ", kLargestManifest,
                " can be read: raise parallel.bucket_elements, or use fewer ranks");
  }
  check_tiling(parse_manifest(text, "manifest to be written"), "manifest to be written");
}

}  // namespace

Hdf5Type stored_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return Hdf5Type::f64;
    case DType::float32:
      return Hdf5Type::f32;
    case DType::bfloat16:
      return Hdf5Type::u16;
    default:
      CHECK(false, "checkpoints cannot hold ", name_of(dtype));
  }
}

std::string rank_file_name(int rank) {
  const std::string digits = std::to_string(rank);
  return "rank-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".h5";
}

uint64_t most_bytes(const StepFile& file, uint64_t block_bytes) {
  std::vector<DatasetSize> datasets;
  for (const BoxOfTensor& box : file.boxes) {
    const bool whole = box.box.extent == box.tensor.shape;
    datasets.push_back({box.tensor.path() + (whole ? "" : "@" + box.box.text()), box.bytes()});
  }
  return most_file_bytes(datasets) + most_manifest_bytes(datasets, block_bytes);
}

uint64_t most_bytes(const CheckpointContent& content) {
  constexpr uint64_t kFrame = 16 << 10;  // the manifest's own fields, unfilled pages of the small files, the directory
  const uint64_t texts = content.configuration.size() + content.state_json.size();
  return content.tokenizer.file.bytes.size() + kFrame + 2 * texts;  // escaped
}

void require_space(const std::string& directory, uint64_t bytes, const std::string& advice) {
  const uint64_t available = free_disk_space(directory);
  if (available >= bytes) return;
  throw_crash("the disk of ", directory, " has ", available, " bytes free, but the checkpoint needs ", bytes, "; ",
              advice);
}

Manifest write_file(const std::string& directory, const StepFile& file, const WriteOptions& options,
                    const RowsOfBox& rows, const PassedPoint& at) {
  CHECK(options.block_bytes % sizeof(double) == 0, "blocks of ", options.block_bytes, " bytes hold no whole elements");
  Manifest part = describe(file, options.block_bytes);
  if (file.boxes.empty()) return part;
  const std::string path = directory + "/" + file.name;
  Hdf5File target = Hdf5File::create(path);
  // Opened before the data is written, so that sync() reports every error of writing it.
  FileDescriptor written = FileDescriptor::open_for_reading(path);
  at("file created");
  {
    BoxWriter writer(target, written, options);
    for (size_t i = 0; i < file.boxes.size(); ++i) {
      part.boxes[i].block_hashes = writer.write(part.dataset(part.boxes[i]), file.boxes[i], i, rows);
      if (i == file.boxes.size() / 2) at("half written");
    }
    writer.finish();
  }
  target.close();
  at("file closed");
  written.sync();
  fsync_directory(directory);
  at("file synced");
  read_back(written, part, options.threads);
  at("file verified");
  return part;
}

uint64_t commit_step(const std::string& temporary, const std::string& final_directory, Manifest manifest,
                     const CheckpointContent& content, const std::function<void()>& before_commit,
                     const PassedPoint& at) {
  manifest.step = content.step;
  manifest.configuration = content.configuration;
  manifest.state_json = content.state_json;
  manifest.data_fingerprint = content.data_fingerprint;
  manifest.code_version = content.code_version;
  if (content.tokenizer.is_there()) {
    const auto& [name, bytes] = content.tokenizer.file;
    manifest.tokenizer_file = name;
    manifest.tokenizer_settings = content.tokenizer.settings;
    manifest.files.push_back({name, bytes.size(), xxh3_128(bytes)});
    write_synced(temporary + "/" + name, bytes);
  }
  at("tokenizer written");
  const std::string text = to_text(manifest);
  require_readable(temporary, manifest, text);
  const std::string manifest_path = temporary + "/" + kManifestName, unfinished = manifest_path + ".tmp";
  write_synced(unfinished, text);
  at("manifest written");
  fs::rename(unfinished, manifest_path);
  at("manifest renamed");
  fsync_directory(temporary);
  at("step synced");
  if (before_commit) before_commit();
  if (fs::exists(fs::symlink_status(final_directory))) set_aside(final_directory, "broken-");
  fs::rename(temporary, final_directory);
  try {
    at("step renamed");
    fsync_directory(parent_directory(final_directory));
  } catch (...) {  // it may not survive a power loss: reported as failed, so it must not be found either
    fs::rename(final_directory, temporary);
    throw;
  }
  at("committed");
  return manifest.bytes() + text.size();
}

}  // namespace shiftron
