// What may be at an export's destination: others' files, remains of a killed export, another running one.
#include "interchange/unfinished_export.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "interchange/gguf_export.h"
#include "interchange/hugging_face_imports.h"
#include "small_disk.h"

namespace shiftron::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class Exports : public ::testing::Test {
 protected:
  HuggingFaceExport how() const { return export_of(model_, HuggingFaceForm::kv_shift); }
  WrittenExport write(const HuggingFaceExport& export_of_it) {
    MemorySource source(model_);
    return write_hugging_face(source, export_of_it, out_);
  }
  std::string fault(const HuggingFaceExport& export_of_it) {
    const Error error = error_of([&] { write(export_of_it); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  void expect_whole(const WrittenExport& written) const {
    EXPECT_EQ(written.files, names_in(out_));
    EXPECT_EQ(names_in(out_), (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                                        "modeling_kv_shift_llama.py"}));
    EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out"});
  }
  const ModelConfig model_ = small_model(kPaper);
  TemporaryDirectory directory_;
  const std::string out_ = directory_.path() + "/out", temporary_ = out_ + ".tmp", mark_ = "/export-that-is-under-way";
};

TEST_F(Exports, WhatIsThereStays) {
  fs::create_directory(out_);
  EXPECT_THAT(fault(how()), HasSubstr("already exists"));
  fs::remove(out_);
  fs::create_directory(temporary_);
  write_text(temporary_ + "/mine", "text");
  EXPECT_THAT(fault(how()), HasSubstr("not left over from an export"));
  EXPECT_EQ(names_in(temporary_), std::vector<std::string>{"mine"});
  fs::remove_all(temporary_);
  fs::create_directory(directory_.path() + "/empty");
  fs::create_directory_symlink(directory_.path() + "/empty", temporary_);
  EXPECT_THAT(fault(how()), HasSubstr("not left over from an export"));
  EXPECT_TRUE(fs::is_symlink(temporary_));
}

// Killed while it wrote, before its mark was there, and before it was gone.
TEST_F(Exports, RemainsOfAKilledOneAreSwept) {
  fs::create_directory(temporary_);
  write_text(temporary_ + "/mine", "text");
  write_text(temporary_ + mark_, "");
  expect_whole(write(how()));
  fs::remove_all(out_);
  fs::create_directory(temporary_);
  expect_whole(write(how()));
  write_text(out_ + mark_, "");
  write_text(out_ + "/old", "text");
  expect_whole(write(how()));
  EXPECT_THAT(fault(how()), HasSubstr("already exists"));
}

// Killed after the rename of its only file: the file is complete and stays.
TEST_F(Exports, RemainsBesideAFileAreSwept) {
  write_text(out_, "whole");
  fs::create_directory(temporary_);
  write_text(temporary_ + mark_, "");
  {
    const std::optional<FileLock> running = FileLock::take(temporary_ + mark_);
    EXPECT_THAT(fault(how()), HasSubstr("out already exists"));
    EXPECT_TRUE(fs::exists(temporary_ + mark_));
  }
  EXPECT_THAT(fault(how()), HasSubstr("out already exists"));
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out"});
  EXPECT_EQ(read_file(out_), "whole");
}

// Killed after its file got the name and before its result was printed: exported again. Another file of that name
// stays.
TEST_F(Exports, AFileThatWasNotToldIsMadeAgain) {
  const auto kill_untold = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      UnfinishedExport place(out_);
      write_text(place.directory() + "/out", "first");
      place.finish_file("out", [] { ::kill(::getpid(), SIGKILL); });
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
  };
  const auto write_again = [&] {
    UnfinishedExport place(out_);
    write_text(place.directory() + "/out", "second");
    place.finish_file("out");
  };
  kill_untold();
  EXPECT_EQ(read_file(out_), "first");
  write_again();
  EXPECT_EQ(read_file(out_), "second");
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out"});
  EXPECT_THAT(error_of(write_again).what(), HasSubstr("out already exists"));
  fs::remove(out_);
  kill_untold();
  fs::rename(out_, out_ + ".first");
  write_text(out_, "mine");
  EXPECT_THAT(error_of(write_again).what(), HasSubstr("out already exists"));
  EXPECT_EQ(read_file(out_), "mine");
}

TEST_F(Exports, ARunningOneIsTold) {
  HuggingFaceExport first = how();
  first.check = [&](const std::string& directory) -> std::map<std::string, std::string> {
    const auto before = names_in(directory);
    EXPECT_THAT(fault(how()), HasSubstr("another export to " + out_ + " is running; wait for it"));
    EXPECT_EQ(names_in(directory), before);
    return {};
  };
  expect_whole(write(first));
  const std::optional<FileLock> last_step = FileLock::take(out_ + mark_);  // it has its name, and still its mark
  EXPECT_THAT(fault(how()), HasSubstr("another export to " + out_ + " is running; wait for it"));
  EXPECT_TRUE(fs::exists(out_ + "/config.json"));
}

TEST_F(Exports, ASmallOneNeedsLittleRoom) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
  MemorySource source(model_);
  write_hugging_face(source, how(), disk / "out");
  const ModelConfig plain = small_model({.query = 0, .key = 0, .value = 0});
  const GgufExport file{.model = plain, .type = SafetensorsType::F32, .positions = 64, .entries = {}};
  MemorySource source_of_plain(plain);
  write_gguf(source_of_plain, file, disk / "plain.gguf");
  { std::ofstream(disk / "filler") << std::string(2 << 20, 'x'); }  // what fits of it
  for (const char* name : {"another", "another.gguf"}) {
    const bool is_file = fs::path(name).has_extension();
    const Error error = error_of([&] {
      if (is_file) write_gguf(source_of_plain, file, disk / name);
      if (!is_file) write_hugging_face(source, how(), disk / name);
    });
    EXPECT_EQ(error.code(), ExitCode::crash);
    EXPECT_THAT(error.what(),
                ::testing::ContainsRegex("another.*: the export needs at least [0-9]{5,6} bytes, but only "));
    EXPECT_FALSE(fs::exists(disk / name + ".tmp"));
  }
}

TEST_F(Exports, ANameThatIsTakenMeanwhileStays) {
  HuggingFaceExport taken = how();
  taken.check = [&](const std::string&) -> std::map<std::string, std::string> {
    fs::create_directory(out_);  // which a plain rename would replace
    return {};
  };
  EXPECT_THAT(fault(taken), HasSubstr("out already exists"));
  EXPECT_TRUE(names_in(out_).empty());
  EXPECT_FALSE(fs::exists(temporary_));
  fs::remove(out_);
  const ModelConfig plain = small_model({.query = 0, .key = 0, .value = 0});
  GgufExport file{.model = plain, .type = SafetensorsType::F32, .positions = 64, .entries = {}};
  file.check = [&](const std::string&) { write_text(out_, "mine"); };
  MemorySource source(plain);
  EXPECT_THAT(error_of([&] { write_gguf(source, file, out_); }).what(), HasSubstr("out already exists"));
  EXPECT_EQ(read_file(out_), "mine");
  EXPECT_FALSE(fs::exists(temporary_));
}

// Exports to one name begin whenever they like: one that ends well has left all of itself, and the others know why not.
TEST_F(Exports, ManyAtOnceLeaveOneWhole) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> written = 0;
    const auto attempt = [&] {
      try {
        UnfinishedExport place(out_);
        write_text(place.directory() + "/whole", "text");
        place.finish();
        ++written;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), AnyOf(HasSubstr("is running"), HasSubstr("out already exists")));
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i) threads.emplace_back(attempt);
    }
    EXPECT_EQ(written, 1) << round;
    EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out"});
    EXPECT_EQ(names_in(out_), std::vector<std::string>{"whole"});
    fs::remove_all(out_);
  }
}

}  // namespace
}  // namespace shiftron::testing
