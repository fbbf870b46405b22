// Reading boxes by pread and block hash.
#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "checkpoint/boxes.h"

namespace shiftron {
namespace {

constexpr uint64_t kKeptBytes = uint64_t{32} << 20;  // of blocks
constexpr uint64_t kMostKept = 64;
constexpr uint64_t kLargestRead = uint64_t{1} << 30;  // of a file that is read whole, the tokenizer

}  // namespace

StepReader::StepReader(std::string step_directory, Manifest manifest)
    : directory_(std::move(step_directory)), manifest_(std::move(manifest)), boxes_(manifest_.tensors.size()) {
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) by_path_[manifest_.tensors[i].path()] = static_cast<int>(i);
  for (size_t i = 0; i < manifest_.boxes.size(); ++i) {
    boxes_[static_cast<size_t>(manifest_.boxes[i].tensor)].push_back(static_cast<int>(i));
  }
  blocks_.resize(std::clamp<uint64_t>(kKeptBytes / manifest_.block_bytes, 1, kMostKept));
}

int StepReader::find(TensorGroup group, const std::string& name) const {
  const auto found = by_path_.find(to_string(group) + "/" + name);
  return found == by_path_.end() ? -1 : found->second;
}

const FileDescriptor& StepReader::open(int file) {
  constexpr size_t kMostOpen = 64;
  if (const auto found = files_.find(file); found != files_.end()) return found->second;
  if (files_.size() == kMostOpen) files_.clear();
  const std::string path = directory_ + "/" + manifest_.files[static_cast<size_t>(file)].name;
  return files_.emplace(file, FileDescriptor::open_for_reading(path, false)).first->second;
}

StepReader::Place StepReader::place(int tensor, const Box& box) const {
  std::optional<Place> first;
  for (const int stored : boxes_[static_cast<size_t>(tensor)]) {
    const ManifestBox& candidate = manifest_.boxes[static_cast<size_t>(stored)];
    if (!intersect(candidate.box, box)) continue;
    const Place there{candidate.file, candidate.byte_offset};
    if (!first || there < *first) first = there;
  }
  return first.value_or(Place{});
}

void StepReader::load_block(const ManifestBox& box, uint64_t index, std::vector<std::byte>& block) {
  const uint64_t begin = index * manifest_.block_bytes;
  const size_t bytes = static_cast<size_t>(std::min(manifest_.block_bytes, box.bytes - begin));
  if (visit_) visit_(manifest_.files[static_cast<size_t>(box.file)], box.byte_offset + begin, bytes);
  block.resize(bytes);
  try {
    open(box.file).read_at(box.byte_offset + begin, block.data(), bytes);
  } catch (const Error& error) {
    throw Error(manifest_.dataset(box) + ": " + error.what(), ExitCode::no_checkpoint);
  }
  const uint64_t stated = box.block_hashes[index];
  const uint64_t actual = xxh3_64(block.data(), bytes);
  if (actual != stated) {
    throw Error(directory_ + "/" + manifest_.files[static_cast<size_t>(box.file)].name + ": " + manifest_.dataset(box) +
                    ": block " + std::to_string(index) + " at byte " + std::to_string(box.byte_offset + begin) +
                    " hashes to " + to_hex(actual) + ", the manifest states " + to_hex(stated) + "; it is damaged",
                ExitCode::no_checkpoint);
  }
}

const std::byte* StepReader::block(int box, uint64_t index) {
  const auto is_it = [&](const Block& block) { return block.box == box && block.index == index; };
  if (!is_it(blocks_[last_])) {
    auto found = std::ranges::find_if(blocks_, is_it);
    if (found == blocks_.end()) {
      found = std::ranges::min_element(blocks_, {}, &Block::used);
      found->box = -1;
      load_block(manifest_.boxes[static_cast<size_t>(box)], index, found->bytes);
      found->box = box;
      found->index = index;
    }
    last_ = static_cast<size_t>(found - blocks_.begin());
  }
  blocks_[last_].used = ++clock_;
  return blocks_[last_].bytes.data();
}

void StepReader::read(int tensor, const Box& box, void* to) {
  const uint64_t size = static_cast<uint64_t>(size_of(manifest_.tensors[static_cast<size_t>(tensor)].dtype));
  for (const int stored : boxes_[static_cast<size_t>(tensor)]) {
    const Box& from = manifest_.boxes[static_cast<size_t>(stored)].box;
    const std::optional<Box> common = intersect(from, box);
    if (!common) continue;
    for_each_run(from, box, *common, [&](int64_t from_index, int64_t to_index, int64_t count) {
      uint64_t at = static_cast<uint64_t>(from_index) * size;
      std::byte* target = static_cast<std::byte*>(to) + static_cast<uint64_t>(to_index) * size;
      const uint64_t end = at + static_cast<uint64_t>(count) * size;
      while (at < end) {
        const uint64_t index = at / manifest_.block_bytes;
        const uint64_t bytes = std::min(end, (index + 1) * manifest_.block_bytes) - at;
        std::memcpy(target, block(stored, index) + (at - index * manifest_.block_bytes), bytes);
        at += bytes;
        target += bytes;
      }
    });
  }
}

std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file) {
  const std::string path = step_directory + "/" + file.name;
  std::string bytes;
  try {
    const FileDescriptor descriptor = FileDescriptor::open_for_reading(path, false);
    if (descriptor.size() != file.bytes) throw_crash(path, " has ", descriptor.size(), " bytes");
    if (file.bytes > kLargestRead) throw_crash(path, " is too large, at most ", kLargestRead, " bytes are read");
    bytes.resize(file.bytes);  // behind both: a manifest may state any size
    descriptor.read_at(0, bytes.data(), bytes.size());
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + "; the manifest states " + std::to_string(file.bytes) + " bytes",
                ExitCode::no_checkpoint);
  }
  if (xxh3_128(bytes) != file.hash)
    throw Error(path + ": its hash differs from the manifest's; it is damaged", ExitCode::no_checkpoint);
  return bytes;
}

}  // namespace shiftron
