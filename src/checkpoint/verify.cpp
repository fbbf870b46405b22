// Reading files once for all of their hashes; comparing HDF5's view with the manifest.
#include "checkpoint/verify.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/boxes.h"
#include "checkpoint/megatron_source.h"
#include "checkpoint/step_files.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/hdf5_file.h"
#include "core/helper_thread.h"
#include "core/shell_word.h"
#include "core/system_error.h"

namespace shiftron {
namespace {

std::vector<const ManifestBox*> boxes_in(const Manifest& manifest, int file) {
  std::vector<const ManifestBox*> boxes;
  for (const ManifestBox& box : manifest.boxes) {
    if (box.file == file) boxes.push_back(&box);
  }
  std::sort(boxes.begin(), boxes.end(),
            [](const ManifestBox* a, const ManifestBox* b) { return a->byte_offset < b->byte_offset; });
  return boxes;
}

// Compares the bytes of a file with the manifest's hashes.
std::vector<std::string> hash_faults(const std::string& path, const Manifest& manifest, const ManifestFile& file,
                                     const std::vector<const ManifestBox*>& boxes, const BytesRead& progress) {
  std::vector<Segment> segments;
  for (const ManifestBox* box : boxes) segments.push_back({box->byte_offset, box->bytes});
  const FileHashes actual = hash_file(FileDescriptor::open_for_reading(path), segments, manifest.block_bytes, progress);
  std::vector<std::string> faults;
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t block = 0; block < boxes[i]->block_hashes.size(); ++block) {
      if (actual.blocks[i][block] == boxes[i]->block_hashes[block]) continue;
      faults.push_back(path + ": " + manifest.dataset(*boxes[i]) + ": block " + std::to_string(block) + " at byte " +
                       std::to_string(boxes[i]->byte_offset + block * manifest.block_bytes) + " is damaged");
    }
  }
  if (faults.empty() && actual.whole != file.hash) {
    faults.push_back(path + ": is damaged" + (boxes.empty() ? "" : " outside its tensors"));
  }
  return faults;
}

std::vector<std::string> hdf5_faults(const std::string& path, const Manifest& manifest,
                                     const std::vector<const ManifestBox*>& boxes) {
  std::vector<std::string> faults;
  const Hdf5File file = Hdf5File::open(path);
  const std::vector<std::string> present = file.datasets();
  std::map<std::string, const ManifestBox*> stated;
  for (const ManifestBox* box : boxes) stated[manifest.dataset(*box)] = box;
  for (const std::string& name : present) {
    if (stated.count(name) == 0) faults.push_back(path + ": dataset " + name + " is not in the manifest");
  }
  for (const auto& [name, box] : stated) {
    if (!std::binary_search(present.begin(), present.end(), name)) {
      faults.push_back(path + ": dataset " + name + " is missing");
      continue;
    }
    const Hdf5DatasetInfo info = file.info(name);
    const DType dtype = manifest.tensors[static_cast<size_t>(box->tensor)].dtype;
    Shape shape;
    for (size_t dim = 0; dim < std::min<size_t>(info.shape.size(), kMaxDims); ++dim) shape.append(info.shape[dim]);
    if (info.type != stored_type(dtype) || info.shape.size() > kMaxDims || !(shape == box->box.extent) ||
        info.byte_offset != box->byte_offset || info.byte_size != box->bytes) {
      faults.push_back(path + ": dataset " + name + " is " + to_string(info.type) + " " + shape.text() + " at byte " +
                       std::to_string(info.byte_offset) + ", but the manifest states " + to_string(stored_type(dtype)) +
                       " " + box->box.extent.text() + " at byte " + std::to_string(box->byte_offset));
    }
    const bool is_half = dtype == DType::bfloat16, has_attribute = file.has_attribute(name, kTypeAttribute);
    if (is_half != has_attribute || (is_half && file.text_attribute(name, kTypeAttribute) != name_of(dtype))) {
      faults.push_back(path + ": dataset " + name + ": attribute " + kTypeAttribute + " must " +
                       (is_half ? std::string("be ") + name_of(dtype) : "not exist"));
    }
  }
  return faults;
}

}  // namespace

FileHashes hash_file(const FileDescriptor& file, const std::vector<Segment>& segments, uint64_t block_bytes,
                     const BytesRead& progress, int threads) {
  FileHashes hashes;
  HashStream whole;
  std::vector<std::byte> buffers[2];
  for (std::vector<std::byte>& buffer : buffers) buffer.resize(std::min(block_bytes, file.size()));
  size_t next = 0;
  uint64_t at = 0;
  HelperThread helper(threads > 1);
  // The next bytes of the file, at most a block; they stay valid until the call after the next.
  const auto take = [&](uint64_t bytes) -> const std::byte* {
    std::byte* const data = buffers[next].data();
    next = 1 - next;
    file.read_at(at, data, bytes);
    helper.start([&whole, data, bytes] { whole.update(data, bytes); });
    at += bytes;
    if (progress) progress(at, file.size());
    return data;
  };
  const auto skip_to = [&](uint64_t end) {
    while (at < end) take(std::min(block_bytes, end - at));
  };
  for (const Segment& segment : segments) {
    CHECK(segment.bytes > 0 && segment.offset >= at, file.path(), ": data at byte ", segment.offset,
          " is out of order");
    skip_to(segment.offset);
    std::vector<uint64_t>& blocks = hashes.blocks.emplace_back();
    while (at < segment.offset + segment.bytes) {
      const uint64_t bytes = std::min(block_bytes, segment.offset + segment.bytes - at);
      blocks.push_back(xxh3_64(take(bytes), bytes));
    }
  }
  skip_to(file.size());
  helper.finish();
  hashes.whole = whole.digest_128();
  return hashes;
}

void require_step_directory(const std::string& directory) {
  refuse_lost_link(directory);
  if (!std::filesystem::is_directory(directory)) {
    const bool is_among_steps = !list_steps(std::filesystem::path(directory + "/..").lexically_normal()).empty();
    if (is_step_name(directory) && is_among_steps && step_was_removed(directory)) throw_step_was_removed(directory);
    throw_bad_input(directory, " is not a directory; check the path");
  }
  if (name_exists(directory + "/" + kManifestName)) return;
  for (const std::string& place : {directory, directory + "/checkpoints"}) {
    const std::vector<StepDirectory> steps = list_steps(place);
    if (steps.empty()) continue;
    throw_bad_input(directory, " is not a checkpoint step (it has no ", kManifestName, "); its newest step is ",
                    steps.front().path, "; `shiftron checkpoint list ", shell_word(directory), "` lists all");
  }
  if (const std::string format = import_format_of(directory); !format.empty()) {
    throw_bad_input(directory, " is not a checkpoint step (it has no ", kManifestName, "); it looks like a model for ",
                    format == "hf" ? "Hugging Face transformers" : "Megatron-LM", ": `shiftron checkpoint import ",
                    shell_word(directory), " --format ", format, " --output RUN` converts it to a step");
  }
}

std::vector<std::string> verify_step(const std::string& step_directory, const BytesRead& progress) {
  std::vector<std::string> faults;
  Manifest manifest;
  try {
    manifest = read_manifest(step_directory);
  } catch (const Error& error) {
    rethrow_unless_step_fault(step_directory, error);
    return {error.what()};
  }
  uint64_t before = 0;  // bytes of the previous files
  const BytesRead of_step = [&](uint64_t done, uint64_t) {
    if (progress) progress(before + done, manifest.bytes());
  };
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const ManifestFile& file = manifest.files[i];
    const std::string path = step_directory + "/" + file.name;
    const std::string fault = file_fault(step_directory, manifest, static_cast<int>(i));
    if (!fault.empty()) {
      faults.push_back(fault);
      continue;
    }
    try {
      const std::vector<const ManifestBox*> boxes = boxes_in(manifest, static_cast<int>(i));
      std::vector<std::string> found = hash_faults(path, manifest, file, boxes, of_step);
      if (found.empty() && !boxes.empty()) found = hdf5_faults(path, manifest, boxes);
      faults.insert(faults.end(), found.begin(), found.end());
    } catch (const Error& error) {
      rethrow_unless_step_fault(step_directory, error);
      faults.push_back(error.what());
    }
    before += file.bytes;
  }
  return faults;
}

}  // namespace shiftron
