// Sites of every rule, for test_rules.py: each mutant outside main() changes the output.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#define CHECK(condition, text) \
  do {                         \
    if (!(condition)) throw std::runtime_error(text); \
  } while (false)

namespace {

struct Log {
  void wait() { text += 'w'; }
  void add_line(const std::string& line) { text += line; }
  void write(char first, char second) {
    text += first;
    text += second;
  }
  std::string text;
};

float sign(float a, float b) {
  return a - b;
}

constexpr int factor(int a, int b) {
  return a * b;
}
static_assert(factor(2, 3) == 6);

bool compare(int a, int b) {
  return a < b;
}

double constant() {
  return 1.5;
}

int bound(int a, int b) {
  return std::min(a, b);
}

std::string text_of(bool empty) {
  if (empty) return "empty";
  return "full";
}

const char* refused(int value) {
  try {
    CHECK(value != 1, "one");
    if (value == 2) throw std::runtime_error("two");
  } catch (const std::runtime_error& error) {
    return error.what()[0] == 'o' ? "refused one" : "refused two";
  }
  return "taken";
}

void only_below(int limit, int& sum) {
  for (int i = 0; i < 3; ++i) {
    if (i == limit) continue;
    sum += 10 * i + 1;
  }
}

int negative(int value) {
  return -value;
}

bool is_between(int value) {
  return value > 1 && negative(value) > -4;
}

size_t constructed(size_t count) {
  const std::vector<int> values(count + 2);
  return values.size();
}

template <typename T>
T last(const std::vector<T>& values) {
  return values[values.size() - 1];
}

}  // namespace

int main() {
  const auto show = [](auto... values) { (std::cout << ... << (std::cout << ' ', values)) << '\n'; };
  show(sign(5, 3), -sign(1, 0.5f), factor(3, 5), compare(1, 1), compare(1, 2), constant(), bound(2, 3), bound(5, 4));
  show(text_of(false), text_of(true), refused(0), refused(1), refused(2));
  int sum = 0;
  only_below(1, sum);
  show(is_between(1), is_between(2), is_between(3), is_between(4));
  show(sum, last(std::vector<int>{7, 9}), constructed(1));
  Log log;
  log.wait();
  log.add_line("line");
  const char a = 'a', b = 'b';
  log.write(a, b);
  show(log.text);
}
