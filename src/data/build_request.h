// BuildRequest: everything that decides the bytes of a dataset, so that only the same build continues a killed one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shiftron {

struct BuildRequest {
  // Names, as people know them, and values. A value that begins with "#" is a hash: messages do not show it.
  std::vector<std::pair<std::string, std::string>> words;
  bool is_saved = false;  // whether the build saves what it has done, and so can be continued

  std::string text() const;  // of `words`: JSON
  std::string hash() const;  // of text()
};

// How the request of `text` differs from that of `old_text`, for people: "--seed (was 0, is 1), --input a.txt". Both
// are text(). Throws Error(bad_input) if `old_text`, which is in the file `path`, is damaged.
std::string changes_of_request(const std::string& old_text, const std::string& text, const std::string& path);

}  // namespace shiftron
