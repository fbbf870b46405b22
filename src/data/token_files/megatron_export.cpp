// One pass over the documents for their number, one that writes tokens and index.
#include "data/token_files/megatron_export.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "core/check.h"
#include "core/file.h"
#include "core/hdf5_file.h"
#include "data/dataset.h"
#include "data/token_files/megatron.h"

namespace shiftron {
namespace {

constexpr int64_t kLongestSequence = INT32_MAX;     // tokens
constexpr int64_t kExportPiece = int64_t{1} << 18;  // tokens or documents that are read at once

// Megatron-LM's DType.optimal_dtype().
TokenElement usual_element(int64_t vocabulary) {
  constexpr int64_t kFewest = 65500;
  return vocabulary < kFewest ? TokenElement::u16 : TokenElement::i32;
}

// A file that gets its name when it is complete.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), unfinished_(path + ".unfinished") {
    if (name_exists(path)) throw_bad_input(path, " exists; choose another --output, or remove it");
    std::error_code ignored;
    std::filesystem::remove(unfinished_, ignored);  // of a killed export
    try {
      file_ = FileDescriptor::create(unfinished_);
    } catch (const Error& error) {
      throw_unwritable("--output", path, error);
    }
  }
  ~NewFile() {
    std::error_code ignored;
    if (!finished_) std::filesystem::remove(unfinished_, ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  FileDescriptor& file() { return file_; }
  void finish() {
    file_.sync();
    file_.close();
    rename_to_new_name_durably(unfinished_, path_);
    finished_ = true;
  }

 private:
  std::string path_, unfinished_;
  FileDescriptor file_;
  bool finished_ = false;
};

// An array of the index, written through a buffer.
template <typename T>
class IndexArray {
 public:
  IndexArray(FileDescriptor& file, uint64_t offset) : file_(file), at_(offset) {}
  void add(T value) {
    values_.push_back(value);
    if (values_.size() == kHeld) flush();
  }
  void flush() {
    file_.write_at(at_, values_.data(), values_.size() * sizeof(T));
    at_ += values_.size() * sizeof(T);
    values_.clear();
  }

 private:
  static constexpr size_t kHeld = size_t{1} << 15;
  FileDescriptor& file_;
  uint64_t at_;
  std::vector<T> values_;
};

// Calls `take` with the number of tokens of each document, end tokens included.
void for_each_length(const Dataset& dataset, const std::function<void(int64_t)>& take) {
  for (const ShardRecord& shard : dataset.description().shards) {
    const Hdf5File file = Hdf5File::open(dataset.directory() + "/" + shard.file);
    const auto fault = [&] {
      throw_bad_input(file.path(),
                      ": /doc_start does not increase from 0 to the end; restore the dataset or build it again");
    };
    if (file.info("doc_start").shape != std::vector<int64_t>{shard.documents + 1}) fault();
    std::vector<uint64_t> starts(static_cast<size_t>(std::min(kExportPiece, shard.documents)) + 1);
    for (int64_t first = 0; first < shard.documents; first += kExportPiece) {
      const int64_t count = std::min(kExportPiece, shard.documents - first);
      file.read_range("doc_start", first, count + 1, starts.data());
      const bool begins = first > 0 || starts[0] == 0, continues = first + count < shard.documents;
      const auto last = static_cast<size_t>(count);
      if (!begins || (!continues && starts[last] != static_cast<uint64_t>(shard.tokens))) fault();
      for (size_t i = 0; i < last; ++i) {
        if (starts[i + 1] <= starts[i] || starts[i + 1] > static_cast<uint64_t>(shard.tokens)) fault();
        take(static_cast<int64_t>(starts[i + 1] - starts[i]));
      }
    }
  }
}

std::string megatron_header(TokenElement element, int64_t sequences, int64_t documents) {
  std::string head(kMegatronMagic);
  const auto add = [&](auto value) { head.append(reinterpret_cast<const char*>(&value), sizeof value); };
  add(uint64_t{1});
  add(static_cast<uint8_t>(megatron_code(element)));
  add(static_cast<uint64_t>(sequences));
  add(static_cast<uint64_t>(documents) + 1);
  CHECK(head.size() == kMegatronHeader, "a header of ", head.size(), " bytes");
  return head;
}

void write_megatron_index(const Dataset& dataset, FileDescriptor& file, const MegatronExport& result) {
  const auto sequences = static_cast<uint64_t>(result.sequences);
  const std::string head = megatron_header(result.element, result.sequences, result.documents);
  file.write_at(0, head.data(), head.size());
  IndexArray<int32_t> lengths(file, head.size());
  IndexArray<int64_t> pointers(file, head.size() + sequences * sizeof(int32_t));
  IndexArray<int64_t> documents(file, head.size() + sequences * (sizeof(int32_t) + sizeof(int64_t)));
  int64_t token = 0, sequence = 0;
  documents.add(0);
  for_each_length(dataset, [&](int64_t tokens) {
    while (tokens > 0) {
      const int64_t piece = std::min(tokens, kLongestSequence);
      lengths.add(static_cast<int32_t>(piece));
      pointers.add(token * static_cast<int64_t>(size_of(result.element)));
      token += piece;
      tokens -= piece;
      ++sequence;
    }
    documents.add(sequence);
  });
  lengths.flush();
  pointers.flush();
  documents.flush();
}

void write_megatron_tokens(Dataset& dataset, FileDescriptor& file, TokenElement element,
                           const Progress::Output& output) {
  Progress progress("exporting", static_cast<uint64_t>(dataset.tokens()), "tokens", output);
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kExportPiece, dataset.tokens())));
  std::vector<char> raw(ids.size() * size_of(element));
  for (int64_t first = 0; first < dataset.tokens(); first += kExportPiece) {
    const int64_t count = std::min(kExportPiece, dataset.tokens() - first);
    dataset.read(first, count, ids.data(), true);
    narrow(element, ids.data(), count, raw.data());
    file.append(raw.data(), static_cast<size_t>(count) * size_of(element));
    progress.advance(static_cast<uint64_t>(count));
  }
}

}  // namespace

MegatronExport export_megatron(const std::string& directory, const std::string& prefix,
                               std::optional<TokenElement> element, const Progress::Output& output) {
  Dataset dataset(directory);
  const int64_t vocabulary = dataset.description().header.vocab_size;
  MegatronExport result;
  result.files = {prefix + ".bin", prefix + ".idx"};
  result.element = element.value_or(usual_element(vocabulary));
  if (megatron_code(result.element) == 0) {
    throw_bad_input("--dtype ", to_string(result.element), " is no type of Megatron-LM's format; give u16 or i32");
  }
  if (vocabulary - 1 > largest_id(result.element)) {
    throw_bad_input("--dtype ", to_string(result.element), " holds ids up to ", largest_id(result.element), ", but ",
                    directory, " has a vocabulary of ", vocabulary, "; omit --dtype");
  }
  result.tokens = dataset.tokens();
  result.has_targets = dataset.has_targets();
  for_each_length(dataset, [&](int64_t tokens) {
    ++result.documents;
    result.sequences += (tokens + kLongestSequence - 1) / kLongestSequence;
  });
  NewFile tokens(result.files[0]), index(result.files[1]);
  write_megatron_tokens(dataset, tokens.file(), result.element, output);
  write_megatron_index(dataset, index.file(), result);
  tokens.finish();
  index.finish();
  return result;
}

}  // namespace shiftron
