// Foreign text on a terminal, in tables and in JSON.
#include "core/foreign_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/log.h"

namespace shiftron {
namespace {

TEST(ForeignText, SteersNothing) {
  EXPECT_EQ(printable_line("\x1b]0;x\x07\r\x7F\b"), "\\x1B]0;x\\x07\\x0D\\x7F\\x08");
  EXPECT_EQ(printable_line("\u0080\u009B2J\u009F\u00A0"), "\\xC2\\x80\\xC2\\x9B2J\\xC2\\x9F\u00A0") << "C1";
  EXPECT_EQ(printable_line("a\u202A\u202Eb\u2066\u2069c\u2028d\u2029"),
            "a\\xE2\\x80\\xAA\\xE2\\x80\\xAEb\\xE2\\x81\\xA6\\xE2\\x81\\xA9c\\xE2\\x80\\xA8d\\xE2\\x80\\xA9");
  EXPECT_EQ(printable_line(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable_line("caf\xE9 \xC0\x80 \xED\xA0\x80 \xF0\x9F"), "caf\\xE9 \\xC0\\x80 \\xED\\xA0\\x80 \\xF0\\x9F");
  const std::string whole = "日本 é 😀 ~ \u00A0 \u200D \u200F \u2027 \u202F \u2065 \u206A | \\x1B";
  EXPECT_EQ(printable_line(whole), whole);
}

TEST(ForeignText, LinesStayLinesWhereTheyMay) {
  EXPECT_EQ(printable_lines("a\n\tb\r\n"), "a\n\tb\\x0D\n");
  EXPECT_EQ(printable_line("a\n\tb"), "a\\x0A\\x09b");
  EXPECT_EQ(printable_value("a\nstep: 9\r\n\n"), "a\n    step: 9\\x0D");
}

TEST(ForeignText, OfALongTextTheBeginning) {
  EXPECT_EQ(printable(std::string(400, 'a')), std::string(400, 'a'));
  EXPECT_EQ(printable(std::string(401, 'a')), std::string(400, 'a') + "… (401 bytes)");
  EXPECT_EQ(printable(std::string(399, 'a') + "éb"), std::string(399, 'a') + "é… (402 bytes)");
}

TEST(ForeignText, AMarkdownCellStaysOne) {
  EXPECT_EQ(markdown_cell("a|b\n<script>x</script>&amp; [l](u) `c` *d* \\"),
            R"(a\|b\x0A\<script\>x\</script\>\&amp; \[l\](u) \`c\` \*d\* \\)");
  EXPECT_EQ(markdown_cell("word_perplexity, ± 0.5"), "word_perplexity, ± 0.5");
  EXPECT_EQ(markdown_code("a"), "`a`");
  EXPECT_EQ(markdown_code("a``b|\n"), "``` a``b\\|\\x0A ```");
  EXPECT_EQ(markdown_code(""), "`  `");
}

TEST(ForeignText, JsonMeansTheSame) {
  const nlohmann::json json = {{"\u009B", "\u202E\x7F é \n\x1b"}, {"b", {1, 2}}};
  const std::string text = printable_json(json.dump(1));
  EXPECT_EQ(nlohmann::json::parse(text), json);
  EXPECT_EQ(text, printable_lines(text)) << "nothing is left to escape";
  EXPECT_NE(text.find("\\u202E\\u007F é \\n\\u001b"), std::string::npos) << text;
}

// A character may come in pieces, or not be finished.
TEST(ForeignText, AStreamOfIt) {
  const std::string text = "a\u009B日\xE6x😀\x1b\n\xF0\x9F";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    std::ostringstream out;
    {
      PrintableBuffer buffer(out.rdbuf());
      std::ostream stream(&buffer);
      for (size_t at = 0; at < text.size(); at += piece) stream << text.substr(at, piece) << std::flush;
      if (piece == 1) stream.put('\xA9') << 'y';
      EXPECT_TRUE(stream.good());
    }
    EXPECT_EQ(out.str(), printable_lines(piece == 1 ? text + "\xA9y" : text)) << piece;
  }
  std::istringstream takes_nothing("x");
  PrintableBuffer buffer(takes_nothing.rdbuf());
  std::ostream stream(&buffer);
  EXPECT_FALSE(stream << "a");
}

TEST(ForeignText, MessagesAreSaidWithoutIt) {
  testing::internal::CaptureStderr();
  print_to_stderr("a\x1b[2J\nb");
  Log log;
  log.info("c\r");
  log.warning("d\x07");
  log.error("e\u202E");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "a\\x1B[2J\nb\nc\\x0D\nwarning: d\\x07\nerror: e\\xE2\\x80\\xAE\n");
}

}  // namespace
}  // namespace shiftron
