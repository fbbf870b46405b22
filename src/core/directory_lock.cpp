// Create a lock file, check again, remove those of dead holders.
#include "core/directory_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "core/host.h"
#include "core/system_error.h"
#include "core/thread_without_signals.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostTries = 1000;

[[noreturn]] void throw_cannot_write(const std::string& path, int error) {
  const std::string what = detail::concatenate("cannot write ", path, ": ", std::strerror(error), advice_on(error));
  if (error == ENOSPC || error == EDQUOT) throw NoSpaceForLock(what, ExitCode::crash);
  throw_crash(what);
}

// Identifies the processes that see the same process ids: those of one boot of one kernel and one PID namespace.
std::string processes_of_this_host() {
  std::string boot = "unknown", space(64, '\0');
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const ssize_t length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  space.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return boot + " " + space;
}

// The start time of the process in kernel clock ticks, which distinguishes it from a later process with the same id.
// Nothing if it has ended.
std::optional<std::string> begin_of(int64_t process) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), text);
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 2));
  std::string field, state;
  fields >> state;                                               // field 3 of proc(5)
  for (int number = 4; number <= 22; ++number) fields >> field;  // 22: starttime
  if (state == "Z" || state == "X" || !fields) return {};
  return field;
}

struct Holder {
  std::string host = "an unknown host", since = "an unknown time", processes, begin;
  int64_t process = 0;
};

Holder read_holder(const std::string& text) {
  Holder holder;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return holder;  // its writer has created it but not written it yet
  try {
    holder = {.host = json.at("host"),
              .since = json.at("since"),
              .processes = json.at("processes"),
              .begin = json.at("begin"),
              .process = json.at("process")};
  } catch (const Json::exception&) {
  }
  return holder;
}

Holder holder_in(const std::string& path) {
  try {
    return read_holder(read_file(path, 4096));
  } catch (const Error&) {  // deleted, or not a lock file
    return {};
  }
}

bool is_of_this_host(const Holder& holder) {
  return holder.processes == processes_of_this_host();
}

// Whether a process with that id exists but /proc hides it from this one, as hidepid does for other users' processes.
bool is_hidden(int64_t process) {
  if (std::ifstream("/proc/" + std::to_string(process) + "/stat").is_open()) return false;
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM;
}

// Nothing if that cannot be determined from here.
std::optional<bool> lives(const Holder& holder) {
  if (!is_of_this_host(holder) || is_hidden(holder.process)) return {};
  return begin_of(holder.process) == holder.begin;
}

// Changes when the file is touched. Opens the file each time, because that makes a network file system ask its server.
std::optional<std::string> trace_of(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  const bool known = file >= 0 ? ::fstat(file, &status) == 0 : ::lstat(path.c_str(), &status) == 0;
  if (file >= 0) ::close(file);
  if (!known) return {};
  return std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) + " " +
         std::to_string(status.st_size);
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::set<int64_t> numbers_in(const std::string& folder) {
  std::set<int64_t> numbers;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return numbers;
  while (const dirent* entry = ::readdir(stream)) {
    char* end = nullptr;
    const int64_t number = std::strtoll(entry->d_name, &end, 10);
    if (number > 0 && *end == '\0') numbers.insert(number);
  }
  ::closedir(stream);
  return numbers;
}

enum class State { alive, dead, gone };  // gone: start over

// Waits up to `timing.patience` if the holder's state cannot be determined from here.
State state_of(const std::string& path, const Holder& holder, const std::string& directory,
               const DirectoryLock::Timing& timing, const DirectoryLock::Notify& notify) {
  if (const std::optional<bool> alive = lives(holder)) return *alive ? State::alive : State::dead;
  const auto start = std::chrono::steady_clock::now();
  const std::optional<std::string> first = trace_of(path);
  if (!first) return State::gone;
  bool notified = !notify;
  while (true) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > timing.patience) return State::dead;
    if (!notified && waited.count() > std::min(1.0, timing.patience / 2)) {
      notified = true;
      notify(directory + " was locked by process " + std::to_string(holder.process) + " on " + holder.host + " at " +
             holder.since + "; waiting up to " + std::to_string(static_cast<int>(timing.patience)) +
             " s to see whether it still runs");
    }
    sleep_seconds(std::min(0.1, timing.touch / 2));
    const std::optional<std::string> now = trace_of(path);
    if (!now) return State::gone;
    // A file without a holder's name was still being written.
    if (*now != *first) return holder.processes.empty() ? State::gone : State::alive;
  }
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& advice, const Notify& notify,
                             const Timing& timing)
    : directory_(directory), folder_(directory + "/" + kName), timing_(timing) {
  std::minstd_rand random(std::random_device{}());
  for (int tries = 1; !try_acquire(advice, notify); ++tries) {  // another process came or went in the meantime
    if (tries == kMostTries) throw_crash("cannot lock ", directory, ": other processes keep changing ", folder_);
    sleep_seconds(std::uniform_real_distribution<double>(0.001, 0.05)(random));
  }
  try {
    toucher_ = thread_without_signals([this] { keep_touching(); });
  } catch (...) {
    give_up();
    throw;
  }
}

DirectoryLock::~DirectoryLock() {
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  leaving_.notify_all();
  toucher_.join();
  give_up();
}

bool DirectoryLock::has_dead_holder(const std::string& directory) {
  const std::string folder = directory + "/" + kName;
  const std::set<int64_t> numbers = numbers_in(folder);
  if (numbers.empty()) return false;
  const Holder holder = holder_in(folder + "/" + std::to_string(*numbers.rbegin()));
  return lives(holder) == false;
}

void DirectoryLock::give_up() {
  if (look() == Hold::held) ::unlink(path_.c_str());
  ::close(descriptor_);
  ::rmdir(folder_.c_str());  // fails while the folder has other files
}

bool DirectoryLock::try_acquire(const std::string& advice, const Notify& notify) {
  if (::mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST) throw_cannot_write(folder_, errno);
  const std::set<int64_t> dead = numbers_in(folder_);
  for (const int64_t number : dead) {
    const std::string path = folder_ + "/" + std::to_string(number);
    const Holder holder = holder_in(path);
    const State state = state_of(path, holder, directory_, timing_, notify);
    if (state == State::gone) return false;
    if (state == State::alive) {
      throw_bad_input(directory_, " is in use: process ", holder.process, " on ", holder.host, " has held it since ",
                      holder.since, "; ", advice);
    }
  }
  const int64_t mine = dead.empty() ? 1 : *dead.rbegin() + 1;
  if (!create(folder_ + "/" + std::to_string(mine))) return false;
  // Another file appeared since numbers_in() above, and its holder was not checked: both step back and try again.
  std::set<int64_t> now = numbers_in(folder_);
  now.erase(mine);
  if (!std::includes(dead.begin(), dead.end(), now.begin(), now.end())) {
    ::unlink(path_.c_str());
    ::close(descriptor_);
    return false;
  }
  for (const int64_t number : dead) ::unlink((folder_ + "/" + std::to_string(number)).c_str());
  return true;
}

// Changes nothing if it throws; false if the file exists already, or its folder does not.
bool DirectoryLock::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0 && (errno == EEXIST || errno == ENOENT)) return false;
  if (descriptor < 0) throw_cannot_write(path, errno);
  const Json holder = {{"host", host_name()},
                       {"process", ::getpid()},
                       {"since", now_text()},
                       {"begin", begin_of(::getpid()).value_or("")},
                       {"processes", processes_of_this_host()}};
  const std::string text = holder.dump() + "\n";
  errno = ENOSPC;  // for a short write, which sets no errno
  const bool written = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (const int error = written ? sync_error(descriptor) : errno; error != 0) {
    ::unlink(path.c_str());
    ::close(descriptor);
    throw_cannot_write(path, error);
  }
  path_ = path;
  descriptor_ = descriptor;
  return true;
}

std::string DirectoryLock::path() const {
  const std::lock_guard guard(mutex_);
  return path_;
}

DirectoryLock::Hold DirectoryLock::look() const {
  const std::lock_guard lock(mutex_);
  return look_unlocked();
}

DirectoryLock::Hold DirectoryLock::look_unlocked() const {
  struct stat mine {};
  struct stat there {};
  if (::stat(path_.c_str(), &there) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return Hold::held;  // unknown at the moment
    return numbers_in(folder_).empty() ? Hold::removed : Hold::taken;
  }
  const bool same = ::fstat(descriptor_, &mine) != 0 || (mine.st_ino == there.st_ino && mine.st_dev == there.st_dev);
  return same ? Hold::held : Hold::taken;
}

void DirectoryLock::retake() {
  const std::lock_guard lock(mutex_);
  if (look_unlocked() != Hold::removed) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  const int before = descriptor_;
  if (create(path_)) ::close(before);
}

void DirectoryLock::keep_touching() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> interval(timing_.touch);
  while (!leaving_.wait_for(lock, interval, [this] { return leaves_; })) ::futimens(descriptor_, nullptr);
}

}  // namespace shiftron
