// Prepares text of others (file names, fields of files, messages that quote them) for a terminal or a table.
#pragma once

#include <cstddef>
#include <streambuf>
#include <string>
#include <string_view>

namespace shiftron {

// Bytes of the character at the start of `text`; 0 if there is no valid one (overlong forms, surrogates and numbers
// above U+10FFFF are not valid).
size_t utf8_length(std::string_view text);

// The text with invalid UTF-8 and everything that controls a terminal escaped byte by byte as \xNN: control characters
// (C0, DEL, C1), line and paragraph separators, overrides of the writing direction. Line feeds and tabs stay.
std::string printable_lines(std::string_view text);
// The same on one line: line feeds and tabs are escaped too.
std::string printable_line(std::string_view text);
// printable_lines() as part of one of our lines: later lines are indented by four spaces, so that they cannot pass for
// our own, and trailing line feeds are dropped.
std::string printable_value(std::string_view text);
// printable_line() of a text's first 400 bytes, for messages.
std::string printable(std::string_view text);

// A cell of a Markdown table: printable_line() with a backslash before everything that Markdown or HTML would
// interpret.
std::string markdown_cell(std::string_view text);
// The same as code, in backticks.
std::string markdown_code(std::string_view text);
// Text for XML, such as SVG: markup is escaped; control characters, which XML does not allow, are dropped.
std::string xml_text(std::string_view text);

// A JSON text with \uNNNN for what printable_line() would escape: every reader gets the same values.
std::string printable_json(std::string_view json);

// Writes to `out` as printable_lines(). A character may arrive in pieces.
class PrintableBuffer : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf* out) : out_(out) {}
  ~PrintableBuffer() override;

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int_type overflow(int_type letter) override;
  int sync() override { return out_->pubsync(); }

 private:
  bool pass_on(size_t size);
  std::streambuf* out_;
  std::string held_;  // an incomplete character
};

}  // namespace shiftron
