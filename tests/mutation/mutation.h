// Included by mutated sources: whether this process runs as a certain mutant.
#pragma once

namespace shiftron::mutation {

extern const int selected;  // the mutant's number; 0: none; -1: none, but reached mutants are recorded
bool record(int number);    // always false

[[gnu::always_inline]] inline bool is_now(int number) {
  return selected == number || (selected < 0 && record(number));
}

// For constexpr functions: when the compiler evaluates them, no mutant is selected.
constexpr bool is(int number) {
  if (__builtin_is_constant_evaluated()) {
    return false;
  } else {
    return is_now(number);
  }
}

// For the listener: one byte per mutant, set when it is reached. All processes of a test share them.
struct Reached {
  unsigned char* bytes = nullptr;
  long count = 0;
};
const Reached& reached();

}  // namespace shiftron::mutation
