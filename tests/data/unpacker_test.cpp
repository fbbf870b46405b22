// Packed text: every byte arrives, and damage does not pass.
#include "data/unpacker.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "data/documents.h"
#include "expect_error.h"
#include "packing.h"
#include "scratch.h"

namespace shiftron {
namespace {

// Letters that pack badly, so that packed bytes cross buffers too.
std::string long_text(size_t bytes) {
  std::string text(bytes, ' ');
  uint32_t state = 7;
  for (char& letter : text) letter = static_cast<char>('!' + ((state = state * 1664525u + 1013904223u) >> 16) % 90);
  return text;
}

std::string only_text(const std::string& path) {
  std::string text;
  read_documents(recognise_inputs({path}), {}, [&](const TextDocument& document) { text += document.text; });
  return text;
}

TEST(Unpacker, SeveralMembersAndZerosAtTheEnd) {
  const Scratch scratch;
  const std::string first = long_text(2500000), second = "short\n";
  for (const Packing packing : kPackings) {
    const std::string bytes = packed(packing, first) + packed(packing, "") + packed(packing, second);
    EXPECT_EQ(packing_of(bytes), packing);
    EXPECT_EQ(only_text(scratch.write("text", bytes)), first + second) << to_string(packing);
    EXPECT_EQ(only_text(scratch.write("text", bytes + std::string(3000000, '\0'))), first + second)
        << to_string(packing);
  }
}

// pzstd begins files with such a frame.
TEST(Unpacker, FramesWithoutDataAreSkipped) {
  const Scratch scratch;
  const std::string frame("\x50\x2A\x4D\x18\x04\x00\x00\x00size", 12);
  EXPECT_EQ(only_text(scratch.write("text", frame + packed(Packing::zstd, "one") + frame)), "one");
}

TEST(Unpacker, WindowsOfLongAreUnpacked) {
  const Scratch scratch;
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, 28);  // one more than libzstd unpacks by itself
  std::string out(1000, '\0');
  const std::string text = "text";
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_compressStream2(context.get(), &to, &in, ZSTD_e_flush);  // the size is not known, so the window is not reduced
  ZSTD_compressStream2(context.get(), &to, &in, ZSTD_e_end);
  out.resize(to.pos);
  EXPECT_EQ(only_text(scratch.write("text", out)), text);
}

TEST(Unpacker, WhatIsCutOffIsRefusedWithItsPlace) {
  const Scratch scratch;
  for (const Packing packing : kPackings) {
    const std::string member = packed(packing, long_text(3000)), both = member + member;
    for (const size_t length :
         {size_t{12}, member.size() / 2, member.size() - 1, member.size() + 1, member.size() + 7, both.size() - 1}) {
      const std::string path = scratch.write("text", both.substr(0, length));
      EXPECT_ERROR(only_text(path), ExitCode::bad_input,
                   path + " is damaged: it is cut off at byte " + std::to_string(length) + "; fetch it again");
    }
  }
}

TEST(Unpacker, DamageIsRefused) {
  const Scratch scratch;
  for (const Packing packing : kPackings) {
    const std::string good = packed(packing, long_text(3000));
    for (const size_t place : {good.size() / 3, good.size() / 2, good.size() - 5, good.size() - 3}) {
      std::string bad = good;
      bad[place] = static_cast<char>(bad[place] ^ 0x40);
      EXPECT_ERROR(only_text(scratch.write("text", bad)), ExitCode::bad_input, " is damaged: ");
    }
    EXPECT_ERROR(only_text(scratch.write("text", good + "more text")), ExitCode::bad_input, " is damaged: ");
  }
}

TEST(Unpacker, AFileThatEndsBeforeItsPackingIsSeenIsRefused) {
  const Scratch scratch;
  EXPECT_ERROR(recognise_inputs({scratch.write("a.jsonl.gz", "")}), ExitCode::bad_input, "a.jsonl.gz has only 0 bytes");
  EXPECT_ERROR(recognise_inputs({scratch.write("a.XZ",
                                               "\xFD"
                                               "7z")}),
               ExitCode::bad_input, "a.XZ has only 3 bytes");
  EXPECT_EQ(only_text(scratch.write("b.txt.gz", "unpacked on the way")), "unpacked on the way");
}

TEST(Unpacker, ThePackedContentDecides) {
  const Scratch scratch;
  const auto kind = [&](const std::string& name, const std::string& text) {
    return recognise_inputs({scratch.write(name, packed(Packing::gzip, text))})[0].kind;
  };
  EXPECT_EQ(kind("a.jsonl.gz", "no object"), InputKind::jsonl);
  EXPECT_EQ(kind("a.txt.gz", "{\"text\": \"one\"}\n"), InputKind::text);
  EXPECT_EQ(kind("a.gz", "{\"text\": \"one\"}\n"), InputKind::jsonl);
  EXPECT_EQ(kind("a.json.GZ", "{\"text\": \"one\"}\n"), InputKind::jsonl);
  EXPECT_ERROR(kind("a.tar.gz", "a.txt" + std::string(252, '\0') + std::string("ustar\0", 6)), ExitCode::bad_input,
               "a.tar.gz is a tar archive");
  EXPECT_ERROR(kind("twice.gz", packed(Packing::xz, "text")), ExitCode::bad_input, "twice.gz is compressed by xz");
}

TEST(Unpacker, APipeIsReadOnce) {
  const Scratch scratch;
  const std::string pipe = scratch / "pipe", text = long_text(3000000);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& bytes : {text, packed(Packing::gzip, text)}) {
    std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << bytes; });
    const std::vector<InputFile> inputs = recognise_inputs({pipe});
    EXPECT_EQ(total_bytes(inputs), 0u);
    std::string read;
    read_documents(inputs, {}, [&](const TextDocument& document) { read += document.text; });
    writer.join();
    EXPECT_EQ(read, text);
    EXPECT_ERROR(read_documents(inputs, {}, [](const TextDocument&) {}), ExitCode::bad_input, "can only be read once");
  }
}

}  // namespace
}  // namespace shiftron
