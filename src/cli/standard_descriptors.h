// Descriptors 0 to 2 of a process: stdin, stdout and stderr.
#pragma once

namespace shiftron::cli {

// Opens /dev/null in place of those that are closed, before a file gets their number and what is printed goes into it.
// A write to stdout still fails then. Throws Error(crash).
void open_standard_descriptors();

// A pipe or a socket says so at any time; errno does so only at the first of the writes that fail.
bool reader_of_stdout_has_left();

}  // namespace shiftron::cli
