// What a fuzz target is: one function that gives bytes to a reader of untrusted files. Linked with libFuzzer
// (fuzzer_main.cpp, by tests/fuzz/run) or with a driver over the corpus (corpus_main.cpp, in every build).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/check.h"

namespace shiftron::fuzz {

// Defined by each <name>_fuzz.cpp. Returns "" where the reader takes the bytes, else its message. What must never
// happen ends the process: a promise that is broken, an exception that is not the reader's own.
std::string read_input(std::string_view bytes);

inline void require(bool kept, const std::string& promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

// The message of what `read` refuses as bad input, "" where it refuses nothing. Other exceptions pass, and end the
// process.
template <typename Read>
std::string refusal_of(Read read) {
  try {
    read();
    return "";
  } catch (const Error& error) {
    require(error.code() == ExitCode::bad_input || error.code() == ExitCode::no_checkpoint,
            std::string("bad bytes are bad input, not: ") + error.what());
    require(*error.what() != '\0', "a refusal says why");
    return error.what();
  }
}

}  // namespace shiftron::fuzz
