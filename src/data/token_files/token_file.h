// What every format of token files says about a file: where its tokens are, and where documents end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_files/element.h"

namespace shiftron {

// Ends of documents, from an index. For one thread.
class DocumentEnds {
 public:
  virtual ~DocumentEnds() = default;
  // The end of the next document: number of the token after its last one. Nothing after the last document. Never falls,
  // and never exceeds the number of tokens. Throws Error(bad_input) if the index is faulty.
  virtual std::optional<uint64_t> next() = 0;
};

// Which tokens are learned: a byte for each, 0 or 1.
struct TokenMask {
  std::string path;
  uint64_t offset = 0;  // bytes before the first
};

struct TokenFile {
  std::string path;    // of the tokens
  std::string format;  // name of the format
  TokenElement element = TokenElement::u16;
  uint64_t offset = 0;  // bytes before the first token
  uint64_t tokens = 0;
  // Null: no index; a document then ends only at an end token.
  std::function<std::unique_ptr<DocumentEnds>()> ends = nullptr;
  std::optional<TokenMask> mask = std::nullopt;
  std::vector<std::string> files = {};  // all that are read
};

// For formats that state the type: throws Error(bad_input) if `element` is given.
void refuse_element(const std::string& path, const char* format, std::optional<TokenElement> element);

}  // namespace shiftron
