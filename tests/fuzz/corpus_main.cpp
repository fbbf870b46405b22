// A target without libFuzzer: every file of its corpus as it is, and changed at random in ways that never change.
// NAME_fuzz CORPUS_DIR [CHANGES]     fails if an input crashes it, takes more than a second or 512 MB, and if it
//                                    refuses a file whose name begins with `good` or accepts another
// NAME_fuzz --verdicts FILE…         a line for each: "taken" or "refused: MESSAGE"
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <random>
#include <vector>

#include "fuzz/input.h"
#include "scratch.h"
#include "time_scale.h"

// Freed memory that AddressSanitizer holds back (256 MB of it otherwise) counts as the process's, not as an input's.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=32"; }

namespace shiftron::fuzz {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

constexpr double kMostSeconds = 1;
constexpr int64_t kMostMemory = 512;  // MB

std::string under_way;  // what is being read, for the handler below

// Of abort() and of broken memory: says which input it was, and lets the process end.
extern "C" void tell_input(int signal) {
  std::signal(signal, SIG_DFL);
  const std::string text = "while reading " + under_way + "\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) >= 0) std::raise(signal);
}

// Of this process alone, so that a busy machine changes no verdict.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string changed(std::string bytes, const std::string& other, Random& random) {
  for (uint64_t left = 1 + random() % 4; left > 0; --left) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    const size_t length = std::min<size_t>(bytes.size() - at, 1 + random() % 16);
    switch (random() % 7) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5: {  // a piece of another file
        const size_t from = other.empty() ? 0 : random() % other.size();
        bytes.replace(at, length, other.substr(from, 1 + random() % 64));
        break;
      }
      default: {
        static const std::vector<std::string> kWords = {
            "0",       "-1",  "18446744073709551615", "9223372036854775808", "1e400", "[", "]", "{", "}", "\"", "null",
            "\\u0000", "\xff"};
        bytes.insert(at, kWords[random() % kWords.size()]);
      }
    }
  }
  return bytes;
}

// The reader's refusal; `kept` becomes false if it took too long.
std::string read_timed(const std::string& name, const std::string& bytes, bool& kept) {
  under_way = name;
  const double begin = processor_seconds();
  std::string refusal = read_input(bytes);
  const double took = processor_seconds() - begin;
  if (took > scaled(kMostSeconds)) {
    std::cerr << name << " took " << took << " s\n";
    kept = false;
  }
  return refusal;
}

int run(const std::string& directory, int changes) {
  std::vector<std::string> names, inputs;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) inputs.push_back(Scratch::read(name));
  if (inputs.empty()) {
    std::cerr << directory << " holds no input\n";
    return 1;
  }
  Random random(17);
  bool kept = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool good = fs::path(names[i]).filename().string().starts_with("good");
    const std::string refusal = read_timed(names[i], inputs[i], kept);
    if (refusal.empty() != good) {
      std::cerr << names[i] << (good ? " is refused: " + refusal : " is accepted") << "\n";
      kept = false;
    }
    for (int change = 0; change < changes; ++change) {
      const std::string& other = inputs[random() % inputs.size()];
      read_timed(names[i] + ", change " + std::to_string(change), changed(inputs[i], other, random), kept);
    }
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const int64_t memory = usage.ru_maxrss / 1024;
  std::cout << inputs.size() << " files, each changed " << changes << " times, " << memory << " MB\n";
  if (memory > kMostMemory) std::cerr << memory << " MB are more than " << kMostMemory << "\n";
  return kept && memory <= kMostMemory ? 0 : 1;
}

int print_verdicts(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    under_way = file;
    std::string message = read_input(Scratch::read(file));
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::cout << (message.empty() ? "taken" : "refused: " + message) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace shiftron::fuzz

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  std::signal(SIGABRT, shiftron::fuzz::tell_input);
  std::signal(SIGSEGV, shiftron::fuzz::tell_input);
  if (arguments.size() > 1 && arguments[0] == "--verdicts") {
    return shiftron::fuzz::print_verdicts({arguments.begin() + 1, arguments.end()});
  }
  if (arguments.empty() || arguments.size() > 2) {
    std::cerr << words[0] << " CORPUS_DIR [CHANGES] | --verdicts FILE…\n";
    return 2;
  }
  return shiftron::fuzz::run(arguments[0], arguments.size() == 2 ? std::stoi(arguments[1]) : 0);
}
