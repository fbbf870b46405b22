// One line for each shard.
#include "data/shard_journal.h"

#include <sstream>

#include "core/check.h"
#include "data/dataset.h"

namespace shiftron {
namespace {

constexpr char kJournal[] = "/sealed-shards";

}  // namespace

ShardJournal::ShardJournal(const std::string& directory, const ShardHeader& header, double save_seconds)
    : directory_(directory), header_(header), clock_(save_seconds) {
  const std::string path = directory + kJournal;
  if (!name_exists(path)) {
    file_ = FileDescriptor::create(path);
    return;
  }
  std::istringstream lines(read_file(path, kLargestDescription));
  std::string line;
  while (std::getline(lines, line) && !lines.eof()) {  // a killed build may have left an incomplete last line
    ShardRecord record = parse_shard(line, header, path);
    const std::string shard = directory + "/" + record.file;
    if (record.file != shard_name(known_.size()) || !name_exists(shard) ||
        FileDescriptor::open_for_reading(shard).size() != record.bytes) {
      break;
    }
    known_.push_back(std::move(record));
  }
  file_ = FileDescriptor::open_for_update(path);
  cut(known_.size());
}

void ShardJournal::cut(size_t shards) {
  known_.resize(shards);
  std::string text;
  for (const ShardRecord& record : known_) text += shard_text(record, header_) + "\n";
  file_.truncate(text.size());
}

void ShardJournal::add(const ShardRecord& record) {
  waiting_ += shard_text(record, header_) + "\n";
  if (!clock_.is_due()) return;
  clock_.run([&] {
    fsync_directory(directory_);
    file_.append(waiting_.data(), waiting_.size());
    file_.sync();
  });
  waiting_.clear();
}

}  // namespace shiftron
