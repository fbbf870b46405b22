// Progress of long work, printed to stderr; silent for anything that ends within two seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace shiftron {

class Progress {
 public:
  // Where lines go, and the clock; without a stream stderr and a steady clock.
  struct Output {
    std::ostream* stream = nullptr;
    bool terminal = false;  // one line, rewritten; otherwise plain lines every five seconds
    std::function<double()> seconds;
  };

  // `total` = 0 if the end is unknown; `unit` is shown after numbers ("bytes" are scaled to MB and GB).
  Progress(std::string label, uint64_t total, std::string unit);
  Progress(std::string label, uint64_t total, std::string unit, Output output);
  ~Progress();  // calls finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total`; cheap enough to call for every item. Not thread-safe.
  void update(uint64_t done);
  void advance(uint64_t more) { update(done_ + more); }
  // Before update(): `kept` was done by a run that was interrupted. Says so at once; the rate does not count it.
  void resume(uint64_t kept);
  // Writes the last line, if any line was written.
  void finish();

 private:
  void show(double now);
  std::string label_;
  uint64_t total_;
  std::string unit_;
  Output output_;
  uint64_t done_ = 0;
  uint64_t kept_ = 0;  // of done_
  double start_ = 0;
  double last_shown_ = 0;
  size_t width_ = 0;  // characters on the terminal's line
  bool shown_ = false;
  bool finished_ = false;
};

}  // namespace shiftron
