// Appends JSON lines.
#include "run/run_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/host.h"
#include "parallel/agree.h"
#include "run/lines.h"
#include "run/step_row.h"

namespace shiftron {
namespace {

// nlohmann-json always writes the shortest text that reads back; rounding to `digits` first shortens it further.
nlohmann::ordered_json rounded(nlohmann::ordered_json value, int digits) {
  if (value.is_structured()) {
    for (auto& item : value) item = rounded(item, digits);
  } else if (value.is_number_float() && digits < 17) {
    return std::stod(fmt::format("{:.{}g}", value.get<double>(), digits));
  }
  return value;
}

void refuse_lost_link(const std::string& directory, const RunWords& words) {
  namespace fs = std::filesystem;
  fs::path link = directory;
  if (!link.has_filename()) link = link.parent_path();  // "a/"
  if (!fs::is_symlink(fs::symlink_status(link)) || fs::exists(link)) return;
  throw_bad_input(directory, " is a symbolic link to ", fs::read_symlink(link).string(),
                  ", which does not exist; mount or create that directory, or choose another ", words.option);
}

// Keeps either all of what `append` writes at the file's end, or nothing of it.
void all_or_nothing(FileDescriptor& file, const std::function<void()>& append) {
  const uint64_t before = file.size();
  try {
    append();
  } catch (...) {
    [[maybe_unused]] const int result = ftruncate(file.get(), static_cast<off_t>(before));
    throw;
  }
}

void append_whole(FileDescriptor& file, const std::string& text) {
  all_or_nothing(file, [&] { file.append(text.data(), text.size()); });
}

// The line end that the file's last line lacks after a crash: "\n"; "" if it lacks none or cannot be read.
std::string missing_end(const std::string& path) {
  try {
    const FileDescriptor file = FileDescriptor::open_for_reading(path);
    char last = '\n';
    if (const uint64_t size = file.size(); size > 0) file.read_at(size - 1, &last, 1);
    return last == '\n' ? "" : "\n";
  } catch (const std::exception&) {
    return "";
  }
}

// Calls `take` with the file's bytes from `begin` to `end`, in pieces, while it returns true.
void for_each_piece(const FileDescriptor& file, uint64_t begin, uint64_t end,
                    const std::function<bool(std::string_view piece)>& take) {
  constexpr uint64_t kMost = uint64_t{1} << 20;
  std::string piece;
  for (; begin < end; begin += piece.size()) {
    piece.resize(std::min(kMost, end - begin));
    file.read_at(begin, piece.data(), piece.size());
    if (!take(piece)) return;
  }
}

// Bytes after `cut` that the end of `superseded` already holds because a start was killed while it moved them. There
// they begin with a line equal to the first of them, or are a part of that line.
uint64_t moved_before(const FileDescriptor& metrics, uint64_t cut, const FileDescriptor& superseded) {
  const uint64_t all = superseded.size();
  std::optional<uint64_t> from;
  uint64_t of_first = 0, same = 0;
  std::string first;
  for_each_piece(metrics, cut, metrics.size(), [&](std::string_view piece) {
    const size_t end = piece.find('\n');
    first += piece.substr(0, end == piece.npos ? end : end + 1);
    return end == piece.npos;
  });
  for_each_line_backward(superseded, [&](uint64_t begin, std::string_view line) {
    if (all - begin > metrics.size() - cut) return false;
    if (line == first) {
      from = begin;
    } else if (first.starts_with(line)) {
      of_first = line.size();
    }
    return !from;
  });
  if (!from) return of_first;
  for_each_piece(superseded, *from, all, [&](std::string_view piece) {
    std::string other(piece.size(), '\0');
    metrics.read_at(cut + same, other.data(), other.size());
    if (other != piece) return false;
    same += piece.size();
    return true;
  });
  return same == all - *from ? same : of_first;
}

// Moves whole lines from the end of metrics.jsonl to that of `path`. If a process is killed meanwhile, the next call
// resumes from there: the lines stay in both files until all of them are safe.
void move_end(const FileDescriptor& metrics, uint64_t cut, const std::string& path) {
  FileDescriptor left = FileDescriptor::open_for_appending(metrics.path(), false);
  left.append("\n", missing_end(metrics.path()).size());
  FileDescriptor superseded = FileDescriptor::open_for_appending(path);
  const uint64_t moved = moved_before(metrics, cut, FileDescriptor::open_for_reading(path));
  all_or_nothing(superseded, [&] {
    if (moved == 0) superseded.append("\n", missing_end(path).size());
    for_each_piece(metrics, cut + moved, metrics.size(), [&](std::string_view piece) {
      superseded.append(piece.data(), piece.size());
      return true;
    });
    superseded.sync();
    fsync_directory(parent_directory(path));
  });
  superseded.close();
  left.truncate(cut);
  left.sync();
}

// Whether the path leads to the open file; true if that cannot be found out.
bool is_at(const std::string& path, const FileDescriptor& file) {
  struct stat there {};
  struct stat mine {};
  if (::stat(path.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return ::fstat(file.get(), &mine) != 0 || (there.st_dev == mine.st_dev && there.st_ino == mine.st_ino);
}

int64_t whole_number_in(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

}  // namespace

nlohmann::json json_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

JsonLines::JsonLines(const std::string& path)
    : path_(path), file_(FileDescriptor::open_for_appending(path)), missing_(missing_end(path)) {}

void JsonLines::write(const nlohmann::ordered_json& object, int digits) {
  add(object, digits);
  flush();
}

void JsonLines::add(const nlohmann::ordered_json& object, int digits) {
  if (path_.empty()) return;
  const std::string line = rounded(object, digits).dump() + "\n";
  if (waiting_.size() + line.size() <= kMostWaiting) {
    waiting_ += line;
  } else {
    ++dropped_;
  }
}

void JsonLines::flush() {
  if (waiting_.empty()) return;
  try {
    append_whole(file_, missing_ + waiting_);
    missing_.clear();
    waiting_.clear();
  } catch (...) {
    missing_ = missing_end(path_);
    throw;
  }
}

bool JsonLines::follow() {
  if (path_.empty() || is_at(path_, file_)) return false;
  create_directories_durably(parent_directory(path_));
  file_ = FileDescriptor::open_for_appending(path_);
  missing_ = missing_end(path_);
  return true;
}

void JsonLines::sync() {
  if (path_.empty()) return;
  flush();
  file_.sync();
  fsync_directory(parent_directory(path_));
}

void for_each_json_line(const std::string& path, const std::function<void(const nlohmann::json& object)>& visit) {
  for_each_line(path, [&](const std::string& line) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object()) visit(object);
  });
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Any thread may write.
struct Events::Waiting {
  std::mutex mutex;
  std::deque<std::string> lines;
};

Events::Events(const std::string& directory, int rank)
    : path_(directory + "/events.jsonl"), rank_(rank), waiting_(std::make_shared<Waiting>()) {}

void Events::write(const std::string& event, const nlohmann::ordered_json& details) const noexcept {
  if (path_.empty()) return;
  try {
    nlohmann::ordered_json line = {{"time", now_text()}, {"rank", rank_}, {"host", host_name()}, {"event", event}};
    line.update(details);
    const std::lock_guard lock(waiting_->mutex);
    std::deque<std::string>& lines = waiting_->lines;
    if (lines.size() < kMostWaiting) lines.push_back(line.dump() + "\n");
    for (; !lines.empty();
         lines.pop_front()) {  // one at a time: other ranks append too, so a line cannot be taken back
      const std::string text = missing_end(path_) + lines.front();
      FileDescriptor::open_for_appending(path_).append(text.data(), text.size());
    }
  } catch (...) {  // a run must not end because of an event
  }
}

bool Events::another_process_started() const noexcept {
  try {
    bool others = false;
    for_each_json_line(path_, [&](const nlohmann::json& object) {
      if (text_in(object, "event") != "start") return;
      others = text_in(object, "host") != host_name() || whole_number_in(object, "process", 0) != ::getpid();
    });
    return others;
  } catch (...) {
    return false;
  }
}

bool Events::write_failure(int code, const std::string& message) const noexcept {
  write("exit", {{"code", code}, {"error", message}});
  try {
    int first = rank_;
    bool is_reported = false;
    for_each_json_line(path_, [&](const nlohmann::json& object) {
      const std::string event = text_in(object, "event");
      if (event == "start") is_reported = false;
      if (event != "exit" || is_reported || text_in(object, "error") != message) return;
      is_reported = true;
      first = static_cast<int>(whole_number_in(object, "rank", rank_));
    });
    return first == rank_ || !is_reported;
  } catch (...) {
    return true;
  }
}

void require_shared(ControlPlane& world, const std::string& directory, const std::string& written) {
  constexpr auto kMostDelay = std::chrono::seconds(10);  // of a network file system
  constexpr uint64_t kLongest = 4096;
  const std::string path = world.broadcast_text(written, 0);
  const auto seen = [&]() -> std::string {
    try {
      return read_file(path, kLongest);
    } catch (const Error&) {
      return "";
    }
  };
  const std::string text = world.broadcast_text(world.rank() == 0 ? seen() : "", 0);
  run_on_all_ranks(world, [&] {
    const auto start = std::chrono::steady_clock::now();
    while (text.empty() || seen() != text) {
      if (std::chrono::steady_clock::now() - start > kMostDelay) {
        throw_bad_input(
            directory, " on ", host_name(),
            " does not show what rank 0 wrote there: output.directory must be on a file system that all hosts share");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
}

std::optional<double> last_save_seconds(const std::string& directory) {
  std::optional<double> seconds;
  for_each_json_line(directory + "/events.jsonl", [&](const nlohmann::json& object) {
    if (text_in(object, "event") != "checkpoint") return;
    if (const auto found = object.find("seconds"); found != object.end() && found->is_number()) seconds = *found;
  });
  return seconds;
}

std::unique_ptr<DirectoryLock> open_run(const std::string& directory, Log& log, const RunWords& words) {
  try {
    refuse_inside_a_step(directory);
    refuse_lost_link(directory, words);
    refuse_lost_link(checkpoints_of(directory), words);  // otherwise the run would start over, and save nothing
    create_directories_durably(directory);
    for (const char* file :
         {"config.conf", "metrics.jsonl", "metrics.superseded.jsonl", "events.jsonl", "library_choices.json"}) {
      const auto kind = std::filesystem::status(directory + "/" + file).type();
      if (kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found) continue;
      throw_bad_input(directory, "/", file, " is a ",
                      kind == std::filesystem::file_type::directory ? "directory" : "pipe, a socket or a device",
                      ", but the run needs a regular file there; move it away, or choose another ", words.option);
    }
    if (const std::string steps = checkpoints_of(directory);
        std::filesystem::exists(steps) && !std::filesystem::is_directory(steps)) {
      throw_bad_input(steps,
                      " is not a directory, but the run keeps its checkpoints there; move it away, or choose another ",
                      words.option);
    }
    for (const char* other : {"dataset.json", "manifest.json"}) {
      if (!std::filesystem::exists(directory + "/" + other)) continue;
      throw_bad_input(words.option, " ", directory, " contains ", other,
                      ", so it is not a run's directory; choose another");
    }
    auto lock = std::make_unique<DirectoryLock>(directory, words.advice,
                                                [&](const std::string& message) { log.info(message); });
    for (const std::string& path : remove_temporaries(directory))
      log.info("removed a leftover of a killed start: " + path);
    return lock;
  } catch (const std::exception& error) {
    throw_unwritable(words.option, directory, error);
  }
}

void add_log_file(const std::string& directory, Log& log) {
  const std::string path = fmt::format("{}/logs/rank-{:05}.log", directory, log.rank());
  try {
    std::filesystem::create_directories(parent_directory(path));
    FileDescriptor::open_for_appending(path);
    log.add_file(path);
  } catch (const std::exception& error) {
    throw_unwritable(RunWords().option, directory, error);
  }
}

std::string checkpoints_of(const std::string& directory) {
  return directory + "/checkpoints";
}

std::string evaluations_of(const std::string& directory) {
  return directory + "/evaluations";
}

int64_t count_interrupted_evaluations(const std::string& directory, int64_t step) {
  int64_t times = 0;
  for_each_json_line(directory + "/events.jsonl", [&](const nlohmann::json& object) {
    if (text_in(object, "event") == kEvaluationLeft && whole_number_in(object, "step", -1) == step) ++times;
  });
  return times;
}

RowsOfStep supersede_metrics(const std::string& directory, int64_t step) {
  const std::string path = directory + "/metrics.jsonl";
  RowsOfStep rows;
  if (!std::filesystem::exists(path)) return rows;
  const FileDescriptor metrics = FileDescriptor::open_for_reading(path);
  uint64_t cut = metrics.size();
  bool stays = false;  // whether a row after the visited one stays
  for_each_line_backward(metrics, [&](uint64_t begin, std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    const double of = read_step_row(line).value_or(StepRow{}).step.value_or(std::nan(""));  // a crash may cut a line
    if (of > static_cast<double>(step) || (std::isnan(of) && !stays)) {
      cut = begin;
      stays = false;
      rows = {};
    } else if (of == static_cast<double>(step)) {
      stays = true;
      const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
      rows.loss |= row.contains("loss");
      rows.validation |= row.contains("validation_loss");
      rows.benchmarks |= row.contains("benchmarks");
    }
    return !(of < static_cast<double>(step));
  });
  if (cut < metrics.size()) move_end(metrics, cut, directory + "/metrics.superseded.jsonl");
  return rows;
}

}  // namespace shiftron
