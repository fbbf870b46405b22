// Documents from text and JSONL files.
#include "data/documents.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "data/bad_lines.h"
#include "expect_error.h"
#include "scratch.h"

namespace shiftron {
namespace {

std::vector<std::string> read(const std::vector<std::string>& files, const DocumentFormat& format = {}) {
  std::vector<std::string> documents;
  read_documents(recognise_inputs(files), format,
                 [&](const TextDocument& document) { documents.emplace_back(document.text); });
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

TEST(Documents, AByteOrderMarkIsNoText) {
  const Scratch scratch;
  const std::string mark = "\xEF\xBB\xBF";
  const std::string line = "{\"text\": \"one\"}\n";
  EXPECT_EQ(read({scratch.write("a.txt", mark + "one"), scratch.write("b.jsonl", mark + line),
                  scratch.write("c", mark + line), scratch.write("d.json", mark + line)}),
            (Texts{"one", "one", "one", "one"}));
}

TEST(Documents, BadLinesAreNamed) {
  const Scratch scratch;
  const auto fault = [&](const std::string& line) {
    return scratch.write("a.jsonl", "{\"text\": \"good\"}\n" + line + "\n");
  };
  EXPECT_ERROR(read({fault("{\"text\": \"cut")}), ExitCode::bad_input, "a.jsonl:2: not JSON: at byte 10");
  EXPECT_ERROR(read({fault("[1]")}), ExitCode::bad_input, "a.jsonl:2: a JSON array");
  EXPECT_ERROR(read({fault("{\"body\": 1, \"id\": 2}")}), ExitCode::bad_input,
               "a.jsonl:2: no key \"text\" (it has: body, id); name the text's key with --text-key");
  EXPECT_ERROR(
      read({fault("{\"text\": 5}")}), ExitCode::bad_input,
      "a.jsonl:2: the value of \"text\" is a number, not a string\n1 broken line; correct it, or leave it out with "
      "--skip-bad 1");
}

TEST(Documents, BrokenLinesAreNamedTogetherOrLeftOut) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "{\"text\": " + std::to_string(i) + "}\n{\"text\": \"good\"}\n\n";
  const std::vector<InputFile> files =
      recognise_inputs({scratch.write("a.jsonl", lines), scratch.write("b.txt", "text")});
  for (const uint64_t most : {0, 11, 12}) {
    BadLines bad(most);
    Texts documents;
    const auto read = [&] {
      read_documents(
          files, {}, [&](const TextDocument& one) { documents.emplace_back(one.text); }, bad);
    };
    if (most == 12) {
      read();
      EXPECT_EQ(documents, (Texts{"good", "good", "good", "good", "good", "good", "good", "good", "good", "good",
                                  "good", "good", "text"}));
    } else {
      EXPECT_ERROR(
          read(), ExitCode::bad_input,
          "a.jsonl:28: the value of \"text\" is a number, not a string\nand 2 more\n12 broken lines; correct them, or "
          "leave them out with --skip-bad 12");
      EXPECT_EQ(documents.size(), most);  // nobody tokenizes the rest
    }
    EXPECT_EQ(bad.count(), 12u);
    ASSERT_EQ(bad.first().size(), 10u);
    EXPECT_EQ(bad.first()[1], (scratch / "a.jsonl") + ":4: the value of \"text\" is a number, not a string");
  }
}

// Of a large input, counting all broken lines would take hours.
TEST(Documents, TheRestIsReadOnlyForAWhile) {
  BadLines bad(1);
  bad.add("a:1: no", 10);
  EXPECT_FALSE(bad.is_enough(uint64_t{1} << 40));
  bad.add("a:2: no", 20);
  EXPECT_FALSE(bad.is_enough((uint64_t{1} << 30) + 20));
  EXPECT_TRUE(bad.is_enough((uint64_t{1} << 30) + 21));
  EXPECT_ERROR(
      bad.check(false), ExitCode::bad_input,
      "a:2: no\nat least 2 broken lines (the rest of the input was not read); correct them, or leave them out with "
      "--skip-bad N");
}

TEST(Documents, LinesKeepBytesThatAreNotUtf8) {
  const Scratch scratch;
  const std::string path = scratch.write("a.jsonl", "{\"text\": \"caf\xE9\", \"n\": NaN}\n{\"prompt\": \"\\udc00\"}\n");
  BadLines bad(1);
  read_documents(
      recognise_inputs({path}), {}, [](const TextDocument& document) { EXPECT_EQ(document.text, "caf\xE9"); }, bad);
  uint64_t replaced = 0;
  const std::string pair = scratch.write("b.jsonl", "{\"prompt\": \"a\\udc00\", \"completion\": \"\\ud800b\"}\n");
  read_documents(recognise_inputs({pair}), {}, [&](const TextDocument& document) {
    EXPECT_EQ(document.prompt, 4u);
    replaced += document.replaced;
  });
  EXPECT_EQ(replaced, 2u);
}

TEST(Documents, MissingFilesAreNamed) {
  const Scratch scratch;
  EXPECT_ERROR(recognise_inputs({}), ExitCode::bad_input, "--input");
  EXPECT_ERROR(recognise_inputs({scratch / "gone", scratch / "lost"}), ExitCode::bad_input, "gone: No such file");
  EXPECT_ERROR(recognise_inputs({scratch / "gone", scratch / "lost"}), ExitCode::bad_input, "lost: No such file");
  EXPECT_EQ(total_bytes(recognise_inputs({scratch.write("a", "12345"), scratch / "a"})), 10u);
}

TEST(Documents, TheKindFollowsNameAndContent) {
  const Scratch scratch;
  const std::string lines = "\n{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  for (const char* name : {"a.jsonl", "a.NDJSON", "a.json", "stdin", "a.data"}) {
    EXPECT_EQ(read({scratch.write(name, lines)}), (Texts{"one", "two"})) << name;
  }
  EXPECT_EQ(read({scratch.write("a.txt", lines)}), Texts{lines});
  EXPECT_EQ(read({scratch.write("plain", "{ no object\n}")}), Texts{"{ no object\n}"});
  const std::string long_line = "{\"text\": \"" + std::string(3 << 20, 'x') + "\"}";
  EXPECT_EQ(recognise_inputs({scratch.write("long", long_line)})[0].kind, InputKind::jsonl);
  EXPECT_EQ(recognise_inputs({scratch.write("empty", "")})[0].kind, InputKind::text);
}

// What is said and followed by nothing would give other documents than were asked for.
TEST(Documents, AFormatThatNoInputHasIsRefused) {
  const std::vector<InputFile> text{{"a.txt", InputKind::text}}, lines{{"a.jsonl", InputKind::jsonl}},
      both{text[0], lines[0]};
  EXPECT_ERROR(check_format(lines, {"---"}), ExitCode::bad_input, "--document-separator is for text files");
  EXPECT_ERROR(check_format(text, {"", "body"}), ExitCode::bad_input, "--text-key 'body' is for JSONL files");
  EXPECT_NO_THROW(check_format(both, {"---", "body"}));
  EXPECT_NO_THROW(check_format(text, {}));
  EXPECT_NO_THROW(check_format(lines, {}));
}

TEST(Documents, WhatIsNoTextIsRefusedWithWhatToDo) {
  const Scratch scratch;
  const std::string folder = scratch.path() + "/";
  const auto refused = [&](const std::string& name, const std::string& bytes, const std::string& part) {
    EXPECT_ERROR(recognise_inputs({scratch.write(name, bytes)}), ExitCode::bad_input, part);
  };
  refused("a.parquet", "PAR1 x", "a Parquet file; pipe its texts: python3 -c '");
  refused("a.txt", "\xFF\xFEh", "iconv -f UTF-16");
  refused("a.txt", std::string("\xFF\xFE\0\0h", 5), "iconv -f UTF-32");
  refused("a.json", "[{\"text\": \"one\"}]",
          "a.json is JSON, but not one object per line; convert it: jq -c '.[]' " + folder + "a.json > " + folder +
              "a.jsonl");
  refused(
      "b.json", "\n {\n\"text\": \"one\"}",
      "b.json is JSON, but not one object per line; convert it: jq -c . " + folder + "b.json > " + folder + "b.jsonl");
  refused("a b.json", "[]", "convert it: jq -c '.[]' '" + folder + "a b.json' > '" + folder + "a b.jsonl'");
  refused("c.json", "some text", "c.json does not hold JSON objects; rename it to .txt if it is text");
  for (const std::string& magic : {std::string("ustar\0", 6), std::string("ustar  \0", 8)}) {
    refused("a.tar", "a.txt" + std::string(252, '\0') + magic, "a.tar is a tar archive; unpack it first: tar -xf ");
  }
  EXPECT_EQ(read({scratch.write("name.txt", "BZhang wrote this.")}), Texts{"BZhang wrote this."});
  const std::string word = std::string(257, 'x') + "ustar  and more";
  EXPECT_EQ(read({scratch.write("word.txt", word)}), Texts{word});
  EXPECT_ERROR(recognise_inputs({"/dev/null"}), ExitCode::bad_input, "/dev/null is a device");
  EXPECT_ERROR(recognise_inputs({scratch.path()}), ExitCode::bad_input, "it is a directory");
  EXPECT_ERROR(recognise_inputs({"-", "/dev/stdin"}), ExitCode::bad_input, "stdin is named twice");
}

// For readers that cannot unpack.
TEST(Documents, APlainFileIsNotPacked) {
  const Scratch scratch;
  const auto refused = [&](const std::string& name, const std::string& bytes, const std::string& part) {
    EXPECT_ERROR(kind_of_file(scratch.write(name, bytes)), ExitCode::bad_input, part);
  };
  const std::string folder = scratch.path() + "/";
  refused("a.jsonl.gz", "\x1F\x8B\x08 x", "a.jsonl.gz is compressed by gzip; unpack it first: gunzip -k ");
  refused("a.zst", "\x28\xB5\x2F\xFD x", "zstd -d ");
  refused("a.xz",
          std::string("\xFD"
                      "7zXZ\0 x",
                      8),
          "xz -dk ");
  refused("it is.gz", "\x1F\x8B\x08 x", "first: gunzip -k '" + folder + "it is.gz'");
  refused("packed.txt", "\x1F\x8B\x08 x",
          "first: gunzip -k < " + folder + "packed.txt > " + folder + "packed.unpacked.txt");
  refused("0a1b", "\x28\xB5\x2F\xFD x", "first: zstd -d < " + folder + "0a1b > " + folder + "0a1b.unpacked");
  std::filesystem::create_symlink("a.jsonl.gz", folder + "link.jsonl.gz");
  EXPECT_ERROR(kind_of_file(folder + "link.jsonl.gz"), ExitCode::bad_input,
               "first: gunzip -k < " + folder + "link.jsonl.gz > " + folder + "link.unpacked.jsonl");
  refused("a.bz2", "BZh91AY&SY x", "a.bz2 is compressed by bzip2; unpack it first: bunzip2 -k ");
  refused("empty.bz2", "BZh9\x17\x72\x45\x38\x50\x90", "is compressed by bzip2");
  const std::string pipe = scratch / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(kind_of_file(pipe), ExitCode::bad_input,
               "pipe is a pipe; write its text to a file first");  // and does not wait
  EXPECT_EQ(kind_of_file(scratch.write("a", "{\"text\": 1}")), InputKind::jsonl);
}

TEST(Documents, Escapes) {
  EXPECT_EQ(unescape("a\\n\\tb\\\\n\\x"), "a\n\tb\\n\\x");
  EXPECT_EQ(unescape("\\0"), std::string(1, '\0'));
  EXPECT_EQ(unescape("end\\"), "end\\");
}

}  // namespace
}  // namespace shiftron
