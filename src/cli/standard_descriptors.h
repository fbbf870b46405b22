// Descriptors 0 to 2 of a process: stdin, stdout and stderr.
#pragma once

#include <iostream>
#include <string>

#include "core/foreign_text.h"

namespace shiftron::cli {

// Opens /dev/null in place of those that are closed; otherwise the next file would get such a number, and what is
// printed would go into it. A write to stdout still fails then. Throws Error(crash).
void open_standard_descriptors();

// Writes to stdout unchanged, past PrintableStdout: texts that the user asked for, and control sequences of our own. If
// the write fails, std::cout is bad, as if it had written.
void write_to_stdout(const std::string& text);

// While it lives, what std::cout prints passes through printable_lines(), because it may quote files whose text could
// control a terminal.
class PrintableStdout {
 public:
  PrintableStdout() : stdout_(std::cout.rdbuf()), printable_(stdout_) { std::cout.rdbuf(&printable_); }
  ~PrintableStdout() { std::cout.rdbuf(stdout_); }
  PrintableStdout(const PrintableStdout&) = delete;
  PrintableStdout& operator=(const PrintableStdout&) = delete;

 private:
  std::streambuf* stdout_;
  PrintableBuffer printable_;
};

// Can be asked at any time about a pipe or a socket; errno says so only at the first write that fails.
bool stdout_reader_is_gone();

}  // namespace shiftron::cli
