// A build moves its files in place by renaming them; dataset.json, which makes them a dataset, comes last.
#include "data/build_directory.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "data/dataset.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParts[] = {"", "train", "validation"};  // datasets that a build may put in its output
constexpr uint64_t kLargestPublished = 1 << 20;                // bytes
constexpr uint64_t kLargestSaved = 1 << 24, kLargestRequest = uint64_t{1} << 30;
// In .building: the hash of each dataset.json that will be published; what a build saved, and its request.
constexpr char kPublished[] = "published", kSaved[] = "saved", kRequest[] = "request";

void make_directory(const std::string& path) {
  try {
    create_directories_durably(path);
  } catch (const fs::filesystem_error& error) {
    throw_crash("cannot write ", path, ": ", error.code().message(), advice_on(error.code().value()));
  }
}

std::string join(const std::string& folder, const std::string& part) {
  return part.empty() ? folder : folder + "/" + part;
}

bool is_finished_file(const std::string& name) {
  const std::vector<std::string> tokenizers = tokenizer_file_names();
  return is_shard_name(name) || std::ranges::find(tokenizers, name) != tokenizers.end();
}

// Whether a build puts a file of this name into the output directory.
bool is_made_here(const std::string& name) {
  return is_finished_file(name) || name.starts_with(std::string(kDescriptionFile) + ".temporary-");
}

[[noreturn]] void refuse_dataset(const std::string& directory) {
  throw_bad_input(directory, " already holds a dataset, which is not overwritten; choose another --output");
}

// What a killed build was about to publish.
struct Promise {
  std::set<std::string> hashes{};  // of each dataset.json
  std::string request{}, note{};
};

const std::string kRequestKey = "request ", kNoteKey = "note ";

Promise promise_in(const std::string& path) {
  Promise promise;
  std::error_code error;
  if (!fs::exists(path, error)) return promise;
  std::istringstream lines(read_file(path, kLargestPublished));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kRequestKey)) {
      promise.request = line.substr(kRequestKey.size());
    } else if (line.starts_with(kNoteKey)) {
      promise.note = line.substr(kNoteKey.size());
    } else {
      promise.hashes.insert(line);
    }
  }
  return promise;
}

}  // namespace

BuildDirectory::BuildDirectory(const std::string& output, const std::vector<std::string>& parts,
                               const BuildRequest& request)
    : output_(output), parts_(parts), request_(request) {
  std::error_code error;
  existed_ = fs::exists(output_, error);
  if (existed_ && !fs::is_directory(output_, error)) {
    throw_bad_input(output_, " exists and is not a directory; choose another --output");
  }
  lock();
  look_for_existing();
  if (is_there_) return;
  make_directory(work());
  if (saved_) {
    remove_temporaries(work());
    for (const std::string& part : parts_) remove_temporaries(work(part));
    return;
  }
  has_cleared_ = !fs::is_empty(work(), error);
  clear_targets();
  clear_work();
  has_published_ = false;
  for (const std::string& part : parts_) make_directory(work(part));
}

BuildDirectory::~BuildDirectory() {
  if (committed_ || is_there_) return;
  std::error_code error;
  clear_targets();
  clear_work();
  fs::remove_all(work(), error);
  lock_.reset();
  if (!existed_) fs::remove(output_, error);
}

std::string BuildDirectory::work(const std::string& part) const {
  return join(output_ + "/" + kWorkName, part);
}
std::string BuildDirectory::target(const std::string& part) const {
  return join(output_, part);
}

void BuildDirectory::remove_buckets() {
  std::error_code error;
  for (const std::string& part : parts_) {
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(work(part), error)) {
      if (entry.path().filename().string().starts_with("bucket-")) old.push_back(entry.path());
    }
    for (const fs::path& path : old) fs::remove(path, error);
  }
}

void BuildDirectory::save(const std::string& text) {
  for (const std::string& part : parts_) fsync_directory(work(part));
  if (!has_saved_) write_file_durably(work(kRequest), request_.text());
  has_saved_ = true;
  write_file_durably(work(kSaved), text);
}

void BuildDirectory::publish(const std::vector<std::string>& texts, const std::string& note) {
  std::string hashes;
  std::error_code error;
  for (const std::string& part : parts_) {  // of another build, into this folder of the output
    if (fs::exists(target(part) + "/" + kDescriptionFile, error)) refuse_dataset(target(part));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    write_file_durably(work(parts_[i]) + "/" + kDescriptionFile, texts[i]);
    hashes += to_hex(xxh3_128(texts[i])) + "\n";
  }
  write_file_durably(work(kPublished), hashes + kRequestKey + request_.hash() + "\n" + kNoteKey + note + "\n");
  has_published_ = true;
  remove_buckets();
  move_all();
}

void BuildDirectory::move(const std::string& part, const std::string& name) {
  make_directory(target(part));
  rename_durably(work(part) + "/" + name, target(part) + "/" + name);
}

// Whatever of the finished files is still in the work folders.
void BuildDirectory::move_all() {
  std::error_code error;
  for (const std::string& part : parts_) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(work(part), error)) {
      if (is_finished_file(entry.path().filename())) names.insert(entry.path().filename());
    }
    for (const std::string& name : names) move(part, name);
  }
  for (const std::string& part : parts_) {
    if (fs::exists(work(part) + "/" + kDescriptionFile, error)) move(part, kDescriptionFile);
  }
}

void BuildDirectory::commit() {
  std::error_code error;
  committed_ = true;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(work(), error)) {
    if (entry.path().filename() != kPublished) old.push_back(entry.path());
  }
  for (const fs::path& path : old) fs::remove_all(path, error);
  fs::remove_all(work(), error);  // until then a build of the same request knows that all is there
}

void BuildDirectory::lock() {
  try {
    make_directory(output_);
    lock_.emplace(output_, "wait for it, or choose another --output",
                  [](const std::string& message) { print_to_stderr(message); });
  } catch (const Error& error) {
    std::error_code ignored;
    if (!existed_) fs::remove(output_, ignored);  // empty
    throw_unwritable("--output", output_, error);
  }
}

void BuildDirectory::look_for_existing() {
  std::error_code error;
  const Promise promise = promise_in(work(kPublished));
  std::set<std::string> missing = promise.hashes;
  std::string holder, foreign;  // a part with a dataset; one that the killed build did not make
  for (const std::string part : kParts) {
    const std::string path = target(part) + "/" + kDescriptionFile;
    if (!fs::exists(path, error)) continue;
    holder = target(part);
    if (missing.erase(to_hex(xxh3_128(read_file(path, kLargestDescription)))) == 0) foreign = holder;
  }
  const bool is_finished = !holder.empty() && missing.empty();
  note_ = promise.note;
  if (foreign.empty() && !promise.hashes.empty() && promise.request == request_.hash()) {
    is_there_ = is_finished || is_complete(missing);
  }
  if (is_there_) return move_all();
  if (is_finished) fs::remove_all(work(), error);
  if (is_finished || !foreign.empty()) {
    refuse_dataset(foreign.empty() ? holder : foreign);
  }
  has_published_ = !promise.hashes.empty();
  for (const auto& entry : fs::directory_iterator(output_, error)) {
    const std::string name = entry.path().filename();
    const bool ours = name == kWorkName || name == DirectoryLock::kName ||
                      (has_published_ && (is_made_here(name) || name == "train" || name == "validation"));
    if (!ours) throw_bad_input(output_, " is not empty (", name, "); choose another --output");
  }
  const bool has_saved = fs::exists(work(kRequest), error) && fs::exists(work(kSaved), error);
  if (!has_saved) return;
  refuse_other_request();
  if (!holder.empty() || !promise.hashes.empty()) return;  // it was publishing, and something has been removed since
  saved_ = read_file(work(kSaved), kLargestSaved);
  has_saved_ = true;
}

// Unless the request is that of what was saved.
void BuildDirectory::refuse_other_request() const {
  const std::string path = work(kRequest), old = read_file(path, kLargestRequest), now = request_.text();
  if (old == now) return;
  throw_bad_input(output_, " holds an interrupted build that these inputs and options do not continue: changed are ",
                  changes_of_request(old, now, path), "; repeat the earlier command to continue it, choose another ",
                  "--output, or start over with: rm -r ", shell_word(output_));
}

// Whether each dataset.json of these hashes waits in a work folder to be moved.
bool BuildDirectory::is_complete(std::set<std::string> hashes) const {
  std::error_code error;
  for (const std::string& part : parts_) {
    const std::string path = work(part) + "/" + kDescriptionFile;
    if (fs::exists(path, error)) hashes.erase(to_hex(xxh3_128(read_file(path, kLargestDescription))));
  }
  return hashes.empty();
}

// Each dataset.json first: without it, the rest is not a dataset.
void BuildDirectory::clear_targets() {
  if (!has_published_) return;
  std::error_code error;
  std::vector<fs::path> old;
  for (const std::string part : kParts) {
    fs::remove(target(part) + "/" + kDescriptionFile, error);
  }
  for (const std::string part : kParts) {
    for (const auto& entry : fs::directory_iterator(target(part), error)) {
      if (is_made_here(entry.path().filename())) old.push_back(entry.path());
    }
  }
  for (const fs::path& path : old) fs::remove_all(path, error);
  fs::remove(target("train"), error);
  fs::remove(target("validation"), error);
}

// What was saved first: it needs the rest.
void BuildDirectory::clear_work() {
  std::error_code error;
  std::vector<fs::path> old;
  fs::remove(work(kSaved), error);
  for (const auto& entry : fs::directory_iterator(work(), error)) old.push_back(entry.path());
  for (const fs::path& path : old) fs::remove_all(path, error);
}

}  // namespace shiftron
