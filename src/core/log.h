// Messages for people: to stderr, and to a file in the run's directory. No global logger: a Log is passed.
#pragma once

#include <memory>
#include <string>

namespace shiftron {

// Writes a line to stderr in one piece, because other ranks and their launcher write there too. As printable_lines().
void print_to_stderr(const std::string& line);

class Log {
 public:
  // Lines name the rank, except those of rank 0 on the console. There other ranks show only warnings and errors.
  explicit Log(int rank = 0);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Also writes every line, with time and rank, to `path` (appends). Messages appear as printable_lines().
  void add_file(const std::string& path);
  void info(const std::string& message);
  void warning(const std::string& message);
  void error(const std::string& message);
  int rank() const { return rank_; }

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
  int rank_;
};

}  // namespace shiftron
