// Compares a step's bytes, and HDF5's view of them, with the manifest.
#include "checkpoint/verify.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/boxes.h"
#include "checkpoint/file_hashes.h"
#include "checkpoint/manifest.h"
#include "checkpoint/step_files.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/hdf5_file.h"
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
