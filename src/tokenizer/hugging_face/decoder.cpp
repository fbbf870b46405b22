// The kinds of decoders, and their table.
#include "tokenizer/hugging_face/decoder.h"

#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/read_kind.h"
#include "tokenizer/hugging_face/replacement.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using MadeDecoder = std::unique_ptr<const PieceDecoder>;

std::string one_character(const JsonPart& part) {
  std::string text = part.text();
  if (text.empty() || first_code_point(text).bytes != text.size()) {
    part.refuse("\"", printable(text), "\" is not one character");
  }
  return text;
}

// Bytes that are not UTF-8 are kept; the package replaces them by U+FFFD.
class ByteLevelDecoder : public PieceDecoder {
 public:
  explicit ByteLevelDecoder(const JsonPart&) {}
  void apply(DecodedText& text) const override {
    for (std::string& part : text.parts) {
      if (is_utf8(part)) part = alphabet_.decoded(part).value_or(part);
    }
  }

 private:
  ByteLevelAlphabet alphabet_;
};

class ReplaceDecoder : public PieceDecoder {
 public:
  explicit ReplaceDecoder(const JsonPart& part) : replacement_(part) {}
  void apply(DecodedText& text) const override {
    for (std::string& part : text.parts) {
      if (is_utf8(part)) replacement_.apply(part);
    }
  }

 private:
  Replacement replacement_;
};

// "<0x0A>" becomes the byte. Likewise.
class ByteFallbackDecoder : public PieceDecoder {
 public:
  explicit ByteFallbackDecoder(const JsonPart&) {}
  void apply(DecodedText& text) const override {
    for (std::string& part : text.parts) {
      if (part.size() != 6 || !part.starts_with("<0x") || !part.ends_with('>')) continue;
      const std::string digits = part.substr(3, 2);
      if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) continue;
      part = std::string(1, static_cast<char>(std::stoi(digits, nullptr, 16)));
    }
  }
};

class FuseDecoder : public PieceDecoder {
 public:
  explicit FuseDecoder(const JsonPart&) {}
  void apply(DecodedText& text) const override {
    std::string all;
    for (const std::string& part : text.parts) all += part;
    text.parts = {std::move(all)};
    text.is_fused = true;
  }
};

// Of each part.
class StripDecoder : public PieceDecoder {
 public:
  explicit StripDecoder(const JsonPart& part)
      : content_(one_character(part["content"])),
        start_(part["start"].integer(0, INT32_MAX)),
        stop_(part["stop"].integer(0, INT32_MAX)) {}
  void apply(DecodedText& text) const override {
    if (text.is_fused && !text.is_whole) return;
    for (std::string& part : text.parts) {
      size_t begin = 0;
      for (int64_t i = 0; i < start_ && part.compare(begin, content_.size(), content_) == 0; ++i) {
        begin += content_.size();
      }
      part.erase(0, begin);
      for (int64_t i = 0; i < stop_ && part.ends_with(content_); ++i) part.resize(part.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class MetaspaceDecoder : public PieceDecoder {
 public:
  explicit MetaspaceDecoder(const JsonPart& part)
      : mark_(one_character(part["replacement"])),
        drops_first_(part["add_prefix_space"].boolean_or(true) && part["prepend_scheme"].text_or("always") != "never") {
  }
  void apply(DecodedText& text) const override {
    for (size_t i = 0; i < text.parts.size(); ++i) {
      const bool drops = i == 0 && drops_first_ && text.is_whole;
      const std::string& part = text.parts[i];
      std::string decoded;
      size_t kept = 0;
      for (size_t at; (at = part.find(mark_, kept)) != std::string::npos; kept = at + mark_.size()) {
        decoded.append(part, kept, at - kept).append(drops ? "" : " ");
      }
      decoded.append(part, kept);
      text.parts[i] = std::move(decoded);
    }
  }

 private:
  std::string mark_;
  bool drops_first_;
};

class DecoderSequence : public PieceDecoder {
 public:
  explicit DecoderSequence(const JsonPart& part) {
    for (const JsonPart& one : part["decoders"].list()) parts_.push_back(read_decoder(one));
  }
  void apply(DecodedText& text) const override {
    for (const MadeDecoder& part : parts_) part->apply(text);
  }

 private:
  std::vector<MadeDecoder> parts_;
};

class SpacedDecoder : public PieceDecoder {
 public:
  void apply(DecodedText& text) const override {
    for (size_t i = text.is_whole ? 1 : 0; i < text.parts.size(); ++i) text.parts[i].insert(0, 1, ' ');
  }
};

constexpr PartKind<MadeDecoder> kDecoders[] = {
    {"ByteFallback", make_part<const PieceDecoder, ByteFallbackDecoder>},
    {"ByteLevel", make_part<const PieceDecoder, ByteLevelDecoder>},
    {"Fuse", make_part<const PieceDecoder, FuseDecoder>},
    {"Metaspace", make_part<const PieceDecoder, MetaspaceDecoder>},
    {"Replace", make_part<const PieceDecoder, ReplaceDecoder>},
    {"Sequence", make_part<const PieceDecoder, DecoderSequence>},
    {"Strip", make_part<const PieceDecoder, StripDecoder>},
};

}  // namespace

std::unique_ptr<const PieceDecoder> read_decoder(const JsonPart& part) {
  if (part.is_null()) return std::make_unique<SpacedDecoder>();
  return read_kind(kDecoders, part);
}

}  // namespace shiftron
