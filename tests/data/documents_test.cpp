// Documents out of text and JSONL files.
#include "data/documents.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

std::vector<std::string> read(const std::vector<std::string>& files, const DocumentFormat& format = {}) {
  std::vector<std::string> documents;
  read_documents(files, format, [&](std::string_view text, uint64_t) { documents.emplace_back(text); });
  return documents;
}

using Texts = std::vector<std::string>;

TEST(Documents, AFileIsADocument) {
  const Scratch scratch;
  EXPECT_EQ(read({scratch.write("a.txt", "one\ntwo\n"), scratch.write("b.txt", "three")}),
            (Texts{"one\ntwo\n", "three"}));
  EXPECT_EQ(read({scratch.write("c.txt", "")}), Texts{""});
}

TEST(Documents, SeparatorsCutAcrossBuffers) {
  const Scratch scratch;
  const DocumentFormat format{"<|end|>", "text"};
  EXPECT_EQ(read({scratch.write("a.txt", "one<|end|>two<|end|><|end|>three")}, format),
            (Texts{"one", "two", "", "three"}));
  EXPECT_EQ(read({scratch.write("b.txt", "one<|end|>")}, format), Texts{"one"});
  for (int shift = 0; shift < 9; ++shift) {  // a separator on the border of two reads
    const std::string first((1 << 20) - shift, 'x');
    EXPECT_EQ(read({scratch.write("c.txt", first + "<|end|>two")}, format), (Texts{first, "two"})) << shift;
  }
}

TEST(Documents, JsonLines) {
  const Scratch scratch;
  const std::string path =
      scratch.write("a.jsonl", "{\"text\": \"one\\ntwo\", \"n\": 1}\n\n  \r\n{\"text\": \"\"}\n{\"text\": \"é\"}");
  EXPECT_EQ(read({path}), (Texts{"one\ntwo", "", "é"}));
}

TEST(Documents, BadLinesAreNamed) {
  const Scratch scratch;
  const auto fault = [&](const std::string& line) {
    return scratch.write("a.jsonl", "{\"text\": \"good\"}\n" + line + "\n");
  };
  EXPECT_ERROR(read({fault("{\"text\": \"cut")}), ExitCode::bad_input, "a.jsonl:2: not JSON: parse error");
  EXPECT_ERROR(read({fault("{\"text\": \"\xFF\"}")}), ExitCode::bad_input, "a.jsonl:2: not JSON");
  EXPECT_ERROR(read({fault("[1]")}), ExitCode::bad_input, "a.jsonl:2: a JSON array");
  EXPECT_ERROR(read({fault("{\"body\": 1, \"id\": 2}")}), ExitCode::bad_input,
               "a.jsonl:2: no key \"text\" (it has: body, id); name the text's key with --text-key");
  EXPECT_ERROR(read({fault("{\"text\": 5}")}), ExitCode::bad_input, "a.jsonl:2: the value of \"text\" is a number");
}

TEST(Documents, MissingFilesAreNamed) {
  const Scratch scratch;
  EXPECT_ERROR(total_bytes({}), ExitCode::bad_input, "--input");
  EXPECT_ERROR(total_bytes({scratch / "gone"}), ExitCode::bad_input, "gone: No such file");
  EXPECT_EQ(total_bytes({scratch.write("a", "12345"), scratch / "a"}), 10u);
}

TEST(Documents, Escapes) {
  EXPECT_EQ(unescape("a\\n\\tb\\\\n\\x"), "a\n\tb\\n\\x");
  EXPECT_EQ(unescape("\\0"), std::string(1, '\0'));
  EXPECT_EQ(unescape("end\\"), "end\\");
}

}  // namespace
}  // namespace shiftron
