// Reading boxes by pread and block hash.
#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/boxes.h"
#include "checkpoint/steps.h"
#include "core/system_error.h"
#include "core/thread_without_signals.h"

namespace shiftron {
namespace {

constexpr uint64_t kKeptBytes = uint64_t{32} << 20;  // of blocks
constexpr uint64_t kMostKept = 64;
constexpr uint64_t kMostKeptBytes = uint64_t{512} << 20;  // of blocks that rows cross
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;     // read, hashed and passed on while it is in the core's cache
constexpr uint64_t kLargestRead = uint64_t{1} << 30;      // of a file that is read whole: the tokenizer

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

const FileDescriptor& StepReader::open(const ManifestBox& box) {
  constexpr size_t kMostOpen = 64;
  if (const auto found = files_.find(box.file); found != files_.end()) return found->second;
  if (files_.size() == kMostOpen) files_.clear();
  const std::string path = directory_ + "/" + manifest_.files[static_cast<size_t>(box.file)].name;
  try {
    FileDescriptor file = FileDescriptor::open_for_reading(path);
    file.expect_front_to_back();
    return files_.emplace(box.file, std::move(file)).first->second;
  } catch (const Error& error) {
    rethrow_unless_step_fault(directory_, error);
    throw Error(manifest_.dataset(box) + ": " + error.what(), ExitCode::no_checkpoint);
  }
}

std::vector<StepReader::Part> StepReader::parts_of(int tensor, const Box& box) const {
  std::vector<Part> parts;
  for (const int stored : boxes_[static_cast<size_t>(tensor)]) {
    const ManifestBox& candidate = manifest_.boxes[static_cast<size_t>(stored)];
    if (intersect(candidate.box, box)) parts.push_back({candidate.file, candidate.byte_offset, stored});
  }
  std::ranges::sort(parts);
  return parts;
}

int64_t StepReader::element_bytes(const ManifestBox& box) const {
  return size_of(manifest_.tensors[static_cast<size_t>(box.tensor)].dtype);
}

uint64_t StepReader::bytes_of(const ManifestBox& box, uint64_t index) const {
  return std::min(manifest_.block_bytes, box.bytes - index * manifest_.block_bytes);
}

void StepReader::visit(const ManifestBox& box, uint64_t index) const {
  if (!visit_) return;
  visit_(manifest_.files[static_cast<size_t>(box.file)], box.byte_offset + index * manifest_.block_bytes,
         bytes_of(box, index));
}

void StepReader::load_block(const FileDescriptor& file, const ManifestBox& box, uint64_t index, std::byte* to,
                            const PieceVisitor& take) const {
  const uint64_t offset = box.byte_offset + index * manifest_.block_bytes, bytes = bytes_of(box, index);
  HashStream hash;
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const uint64_t some = std::min(kPieceBytes, bytes - at);
    std::byte* piece = take ? to : to + at;
    try {
      file.read_at(offset + at, piece, some);
    } catch (const Error& error) {
      rethrow_unless_step_fault(directory_, error);
      throw Error(manifest_.dataset(box) + ": " + error.what(), ExitCode::no_checkpoint);
    }
    hash.update(piece, some);
    if (take) take(at, some, piece);
  }
  const uint64_t stated = box.block_hashes[index];
  const uint64_t actual = hash.digest_64();
  if (actual != stated) {
    throw Error(file.path() + ": " + manifest_.dataset(box) + ": block " + std::to_string(index) + " at byte " +
                    std::to_string(offset) + " hashes to " + to_hex(actual) + ", but the manifest states " +
                    to_hex(stated) + "; it is damaged",
                ExitCode::no_checkpoint);
  }
}

std::optional<int64_t> StepReader::place_of(const Part& part, const Box& box) const {
  const ManifestBox& stored = manifest_.boxes[static_cast<size_t>(part.stored)];
  if (intersect(stored.box, box) != stored.box) return std::nullopt;
  if (static_cast<int64_t>(manifest_.block_bytes) % element_bytes(stored) != 0) return std::nullopt;
  int64_t place = 0;
  int64_t elements = 0;
  for_each_run(stored.box, box, stored.box, [&](int64_t from_index, int64_t to_index, int64_t count) {
    if (from_index == 0) place = to_index, elements = count;
  });
  if (elements != stored.box.extent.count()) return std::nullopt;
  return place;
}

void StepReader::append_blocks(const Part& part, int64_t place, const Destination& destination,
                               std::vector<BlockRead>& blocks) const {
  const ManifestBox& stored = manifest_.boxes[static_cast<size_t>(part.stored)];
  const int64_t block = static_cast<int64_t>(manifest_.block_bytes) / element_bytes(stored);  // elements
  int64_t first = place;
  for (uint64_t index = 0; index < stored.block_hashes.size(); ++index, first += block) {
    blocks.push_back({part.stored, index, first, &destination});
  }
}

void StepReader::read_blocks(const std::vector<BlockRead>& blocks, int threads) {
  const auto file_of = [&](const BlockRead& block) { return manifest_.boxes[static_cast<size_t>(block.stored)].file; };
  for (auto begin = blocks.begin(); begin != blocks.end();) {
    const auto end =
        std::find_if(begin, blocks.end(), [&](const BlockRead& block) { return file_of(block) != file_of(*begin); });
    read_blocks_of_file({begin, end}, threads);
    begin = end;
  }
}

void StepReader::read_blocks_of_file(std::span<const BlockRead> blocks, int threads) {
  const auto box_of = [&](size_t i) -> const ManifestBox& {
    return manifest_.boxes[static_cast<size_t>(blocks[i].stored)];
  };
  const FileDescriptor& file = open(box_of(0));
  std::mutex mutex;
  size_t next = 0;
  std::exception_ptr fault;
  const auto work = [&] {
    std::vector<std::byte> room;
    try {
      while (true) {
        size_t mine = 0;
        {
          const std::lock_guard lock(mutex);
          if (next == blocks.size() || fault) return;
          mine = next++;
          visit(box_of(mine), blocks[mine].index);
        }
        load_block(file, box_of(mine), blocks[mine], room);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
  };
  const size_t wanted = std::min(static_cast<size_t>(std::max(1, threads)), blocks.size());
  std::vector<std::thread> others = threads_without_signals(wanted - 1, work);
  work();
  for (std::thread& other : others) other.join();
  if (fault) std::rethrow_exception(fault);
}

void StepReader::load_block(const FileDescriptor& file, const ManifestBox& box, const BlockRead& block,
                            std::vector<std::byte>& room) const {
  const Destination& destination = *block.destination;
  const int64_t size = element_bytes(box);
  if (destination.to != nullptr) {
    return load_block(file, box, block.index, static_cast<std::byte*>(destination.to) + block.first * size);
  }
  room.resize(kPieceBytes);
  load_block(file, box, block.index, room.data(), [&](uint64_t at, uint64_t bytes, const std::byte* piece) {
    destination.take(block.first + static_cast<int64_t>(at) / size, static_cast<int64_t>(bytes) / size, piece);
  });
}

const std::byte* StepReader::block(int box, uint64_t index) {
  const auto is_it = [&](const Block& block) { return block.box == box && block.index == index; };
  if (!is_it(blocks_[last_])) {
    auto found = std::ranges::find_if(blocks_, is_it);
    if (found == blocks_.end()) {
      found = std::ranges::min_element(blocks_, {}, &Block::used);
      found->box = -1;
      const ManifestBox& stored = manifest_.boxes[static_cast<size_t>(box)];
      visit(stored, index);
      found->bytes.resize(bytes_of(stored, index));
      load_block(open(stored), stored, index, found->bytes.data());
      found->box = box;
      found->index = index;
    }
    last_ = static_cast<size_t>(found - blocks_.begin());
  }
  blocks_[last_].used = ++clock_;
  return blocks_[last_].bytes.data();
}

void StepReader::read(int tensor, const Box& box, void* to) {
  const std::vector<Part> parts = parts_of(tensor, box);
  // The next rows continue in the block in which this part ends, and the part may have begun one block before: two
  // blocks each.
  const auto crossed = std::ranges::count_if(parts, [&](const Part& part) {
    const Box& stored = manifest_.boxes[static_cast<size_t>(part.stored)].box;
    return intersect(stored, box) != stored;
  });
  keep_blocks(2 * static_cast<uint64_t>(crossed));
  for (const Part& part : parts) read_part(part, box, to);
}

void StepReader::keep_blocks(uint64_t count) {
  count = std::min(count, kMostKeptBytes / manifest_.block_bytes);
  if (count > blocks_.size()) blocks_.resize(count);
}

void StepReader::read_part(const Part& part, const Box& box, void* to) {
  const ManifestBox& stored = manifest_.boxes[static_cast<size_t>(part.stored)];
  const Box& from = stored.box;
  const auto size = static_cast<uint64_t>(element_bytes(stored));
  const std::optional<Box> common = intersect(from, box);
  if (!common) return;
  for_each_run(from, box, *common, [&](int64_t from_index, int64_t to_index, int64_t count) {
    uint64_t at = static_cast<uint64_t>(from_index) * size;
    std::byte* target = static_cast<std::byte*>(to) + static_cast<uint64_t>(to_index) * size;
    const uint64_t end = at + static_cast<uint64_t>(count) * size;
    while (at < end) {
      const uint64_t index = at / manifest_.block_bytes;
      const uint64_t bytes = std::min(end, (index + 1) * manifest_.block_bytes) - at;
      std::memcpy(target, block(part.stored, index) + (at - index * manifest_.block_bytes), bytes);
      at += bytes;
      target += bytes;
    }
  });
}

std::string read_manifest_file(const std::string& step_directory, const ManifestFile& file) {
  const std::string path = step_directory + "/" + file.name;
  std::string bytes;
  try {
    const FileDescriptor descriptor = FileDescriptor::open_for_reading(path);
    if (descriptor.size() != file.bytes) throw_crash(path, " has ", descriptor.size(), " bytes");
    if (file.bytes > kLargestRead) throw_crash(path, " is too large; at most ", kLargestRead, " bytes can be read");
    bytes.resize(file.bytes);  // only after both checks: a manifest may state any size
    descriptor.read_at(0, bytes.data(), bytes.size());
  } catch (const Error& error) {
    rethrow_unless_step_fault(step_directory, error);
    throw Error(std::string(error.what()) + "; the manifest states " + std::to_string(file.bytes) + " bytes",
                ExitCode::no_checkpoint);
  }
  if (xxh3_128(bytes) != file.hash)
    throw Error(path + ": its hash differs from the manifest's; it is damaged", ExitCode::no_checkpoint);
  return bytes;
}

}  // namespace shiftron
