// Descriptors 0 to 2 of a process: stdin, stdout and stderr.
#pragma once

#include <iostream>
#include <string>

#include "core/foreign_text.h"

namespace shiftron::cli {

// Opens /dev/null in place of those that are closed, before a file gets their number and what is printed goes into it.
// A write to stdout still fails then. Throws Error(crash).
void open_standard_descriptors();

// What is to reach stdout as it is, past PrintableStdout: texts that were asked for, and control sequences of our own.
// Where the write fails std::cout is bad, as if it had written.
void write_to_stdout(const std::string& text);

// While it lives, what std::cout prints appears as printable_lines(): it may quote files, whose text may steer a
// terminal.
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

// A pipe or a socket says so at any time; errno does so only at the first of the writes that fail.
bool reader_of_stdout_has_left();

}  // namespace shiftron::cli
