// Command line and files together: precedence, all errors at once, texts that read back, the files of configs/.
#include "cli/config_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "config/changed_keys.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "core/check.h"

namespace shiftron::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedConfig read(const std::vector<std::string>& words, const std::vector<CommandOption>& own = {},
                  const RunConfig& base = {}) {
  const CommandLine line = parse_command_line(words, with_configuration(own));
  return {line, read_config(line, base)};
}

class ConfigReader : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("shiftron_config_" + std::string(test->name()) + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(ConfigReader, LaterFilesWinAndTheCommandLineOverAll) {
  const std::string a = file("a.conf", "[model]\nlayers = 2\nhidden = 64 # width\n[train]\nseed=1\nsteps=10\n");
  const std::string b = file("b.conf", "# comment\n[model]\nlayers = 3\n\n[train]\n  seed = 2\n");
  const ParsedConfig parsed = read({"--train.seed", "3", "--config", a, "--config=" + b, "--train.global_batch=8"});
  EXPECT_THAT(parsed.config.reading_faults, IsEmpty());
  EXPECT_EQ(parsed.config.model.layers, 3);
  EXPECT_EQ(parsed.config.model.hidden, 64);
  EXPECT_EQ(parsed.config.train.seed, 3);
  EXPECT_EQ(parsed.config.train.steps, 10);
  EXPECT_EQ(parsed.config.train.global_batch, 8);
  EXPECT_EQ(to_string(parsed.config.origins.at("model.layers")), b + ":3");
  EXPECT_EQ(to_string(parsed.config.origins.at("train.seed")), "command line");
  const ParsedConfig reversed = read({"--config", b, "--config", a});
  EXPECT_EQ(reversed.config.model.layers, 2);
}

TEST_F(ConfigReader, ListsReplaceAcrossLevels) {
  const std::string a = file("a.conf", "[data]\ntrain = one:2\ntrain = two\nvalidation = v\n");
  const std::string b = file("b.conf", "[data]\ntrain = three\n");
  EXPECT_EQ(read({"--config", a}).config.data.train.size(), 2u);
  EXPECT_EQ(read({"--config", a, "--config", b}).config.data.train.size(), 1u);
  const RunConfig config = read({"--config", a, "--data.train", "x", "--data.train", "y:0.5"}).config;
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[1].directory, "y");
  EXPECT_EQ(config.data.train[1].weight, 0.5);
  EXPECT_EQ(config.data.validation.size(), 1u);
  for (const std::vector<std::string>& none :
       {std::vector<std::string>{"--data.validation="}, {"--data.validation", ""}}) {
    std::vector<std::string> words = {"--config", a};
    words.insert(words.end(), none.begin(), none.end());
    const RunConfig emptied = read(words).config;
    EXPECT_THAT(emptied.reading_faults, IsEmpty());
    EXPECT_THAT(emptied.data.validation, IsEmpty());
    EXPECT_EQ(emptied.data.train.size(), 2u);
  }
}

TEST_F(ConfigReader, CollectsEveryFault) {
  const std::string a =
      file("a.conf",
           "[model]\nhiden = 64\nlayers = many\nthis line is none\n[train]\nsteps = 5\nsteps = 6\n[trian]\nseed = 1\n");
  const std::string missing = folder_ / "missing.conf";
  const ParsedConfig parsed = read({"--config", a, "--config", missing, "--config", folder_, "--model.vocap", "256",
                                    "stray", "--train.seed=x", "--dry-run=3", "--raks", "2", "--parallel.tp"},
                                   {flag("dry-run", "help"), integer_option("ranks", "help", at_least(1))});
  EXPECT_THAT(
      parsed.config.reading_faults,
      ::testing::UnorderedElementsAre(
          "unknown key model.hiden; did you mean model.hidden? (" + a + ":2)",
          "model.layers 'many' is not a whole number (" + a + ":3)",
          "'this line is none' is neither 'key = value' nor '[section]' (" + a + ":4)",
          "train.steps is given twice, first at " + a + ":6 (" + a + ":7)",
          "unknown key trian.seed; did you mean train.seed? (" + a + ":9)",
          "cannot read a configuration file: cannot open " + missing + ": No such file or directory; check the path",
          "cannot read a configuration file: cannot read " + folder_.string() + ": it is a directory; name a file",
          "unknown option --model.vocap; did you mean --model.vocab? (command line)",
          "unexpected word 'stray' (command line)", "train.seed 'x' is not a whole number (command line)",
          "--dry-run takes no value (command line)", "unknown option --raks; did you mean --ranks? (command line)",
          "--parallel.tp needs a value (command line)"));
  try {
    validate(read({"--config", a}).config, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("unknown key model.hiden"));
    EXPECT_THAT(error.what(), HasSubstr("optimizer.learning_rate is required"));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("model.layers is required")));
  }
}

// Its keys may be all that is missed.
TEST_F(ConfigReader, OfAFileThatCannotBeReadThatAloneIsTold) {
  const std::string missing = folder_ / "missing.conf";
  for (const std::string& path : {missing, folder_.string()}) {
    EXPECT_THAT(find_faults(read({"--config", path, "--model.heads", "3", "--parallel.tp", "2", "stray"}).config, 3),
                ElementsAre(::testing::AllOf(HasSubstr("cannot read a configuration file: "), HasSubstr(path)),
                            "unexpected word 'stray' (command line)"));
  }
}

// Neither waits for a writer, nor takes memory without end.
TEST_F(ConfigReader, PipesDevicesAndLargeFilesAreRefused) {
  const std::string pipe = folder_ / "pipe", large = file("large.conf", "");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::resize_file(large, uint64_t{1} << 40);  // of no bytes on the disk
  std::filesystem::create_symlink("absent", folder_ / "lost.conf");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {pipe, "it is a pipe, a socket or a device"},
      {"/dev/zero", "it is a pipe, a socket or a device"},
      {large, "is longer than 16777216 bytes"},
      {folder_ / "lost.conf", "is a symbolic link to absent, which does not exist"}};
  for (const auto& [path, reason] : cases) {
    EXPECT_THAT(read({"--config", path}).config.reading_faults, ElementsAre(HasSubstr(reason))) << path;
  }
}

// As files are after a crash of the machine, or a text in UTF-16.
TEST_F(ConfigReader, NulBytesAreFaultsWithFileAndLine) {
  const std::string path = file("a.conf", std::string("[model]\nlayers = 2\n[train]\nsteps = 2\0\0\nseed = 5\n", 48));
  EXPECT_THAT(
      read({"--config", path}).config.reading_faults,
      ElementsAre("a NUL byte: the file is not text, or it is UTF-16; convert it with iconv -f UTF-16 -t UTF-8 (" +
                  path + ":4)"));
}

TEST_F(ConfigReader, BrokenSectionLineIsAFault) {
  EXPECT_THAT(read_config_text("[model\nlayers = 3\n", "t").reading_faults,
              ::testing::Contains(HasSubstr("'[model' is neither 'key = value' nor '[section]' (t:1)")));
}

TEST_F(ConfigReader, AWordThatACommentWouldCutIsAFault) {
  const RunConfig config =
      read_config_text("[output]\ndirectory = exp#1\n[train] # of one\nsteps = 7 # enough\n#end\n", "t");
  EXPECT_THAT(config.reading_faults, ElementsAre(HasSubstr("'directory = exp#1' begins a comment inside a word")));
  EXPECT_THAT(config.reading_faults.front(), HasSubstr("(t:2)"));
  EXPECT_EQ(config.train.steps, 7);
}

TEST_F(ConfigReader, WordsBehindASectionAreOneFault) {
  const RunConfig config = read_config_text("[ train ] steps = 3\nseed = 5\r\n[model]\r\nlayers = 4\n", "t");
  EXPECT_THAT(config.reading_faults,
              ElementsAre("'[ train ] steps = 3' has text after its ']': put [section] on a line of its own (t:1)"));
  EXPECT_EQ(config.train.seed, 5);
  EXPECT_EQ(config.model.layers, 4);
}

TEST_F(ConfigReader, OwnOptions) {
  const std::vector<CommandOption> own = {flag("dry-run", "no data"),
                                          integer_option("ranks", "ranks", between(1, 1000)), json_flag()};
  const ParsedConfig parsed = read({"--dry-run", "--ranks=16", "--train.seed", "3"}, own);
  EXPECT_THAT(parsed.config.reading_faults, IsEmpty());
  EXPECT_TRUE(parsed.has("dry-run"));
  EXPECT_FALSE(parsed.has("json"));
  EXPECT_EQ(parsed.integer("ranks", 1), 16);
  EXPECT_EQ(parsed.config.train.seed, 3);
  EXPECT_TRUE(read({"--help"}).help);
  EXPECT_FALSE(read({"--help"}).help_all);
  EXPECT_TRUE(read({"--help", "all"}).help_all);
  EXPECT_TRUE(read({"--train.seed", "3", "-h", "all"}).help_all);
  EXPECT_THAT(read({"--ranks", "4294967297"}, own).config.reading_faults,
              ElementsAre("--ranks '4294967297' must be <= 1000 (command line)"));
}

TEST_F(ConfigReader, AColonBeforeTheLastSlashBelongsToThePath) {
  const RunConfig config = read({"--data.train", "host:1/corpus", "--data.train", "c:2/d:0.5"}).config;
  EXPECT_THAT(config.reading_faults, IsEmpty());
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[0].directory, "host:1/corpus");
  EXPECT_EQ(config.data.train[0].weight, 0);
  EXPECT_EQ(config.data.train[1].directory, "c:2/d");
  EXPECT_EQ(config.data.train[1].weight, 0.5);
}

TEST_F(ConfigReader, RepeatsOnTheCommandLineWin) {
  const RunConfig config =
      read({"--train.seed", "1", "--parallel.stage_layers", "2,2", "--train.seed=2", "--parallel.stage_layers="})
          .config;
  EXPECT_THAT(config.reading_faults, IsEmpty());
  EXPECT_EQ(config.train.seed, 2);
  EXPECT_THAT(config.parallel.stage_layers, IsEmpty());
}

TEST_F(ConfigReader, NegativeNumbersAreValues) {
  const RunConfig config = read({"--optimizer.clip", "-1", "--train.stop_at", "-2"}).config;
  EXPECT_THAT(config.reading_faults, IsEmpty());
  EXPECT_EQ(config.optimizer.clip, -1);
  EXPECT_EQ(config.train.stop_at, -2);
}

TEST_F(ConfigReader, NamesAreNotGuessedFromTheirBeginnings) {
  EXPECT_THAT(read({"--train.step", "3"}).config.reading_faults,
              ElementsAre("unknown option --train.step; did you mean --train.steps? (command line)"));
}

TEST_F(ConfigReader, WindowsLineEndsAndFullKeys) {
  const RunConfig config = read_config_text("model.layers = 3\r\n[train]\r\nsteps = 9\r\n", "text");
  EXPECT_THAT(config.reading_faults, IsEmpty());
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.train.steps, 9);
}

TEST_F(ConfigReader, ResolvedTextReadsBack) {
  const ParsedConfig parsed = read({"--model.layers",
                                    "3",
                                    "--model.hidden",
                                    "64",
                                    "--model.heads",
                                    "4",
                                    "--optimizer.learning_rate",
                                    "0.1",
                                    "--optimizer.epsilon",
                                    "1.0000000000000002e-8",
                                    "--data.train",
                                    "with space:3",
                                    "--parallel.stage_layers",
                                    "2,1",
                                    "--output.directory",
                                    "my run",
                                    "--checkpoint.resume",
                                    "7",
                                    "--shift.form",
                                    "gate",
                                    "--optimizer.betas",
                                    "0.8,0.9"});
  EXPECT_THAT(parsed.config.reading_faults, IsEmpty());
  const std::string text = to_config_text(parsed.config);
  const RunConfig back = read_config_text(text, "config.conf");
  EXPECT_THAT(back.reading_faults, IsEmpty());
  EXPECT_THAT(changed_keys(parsed.config, back), IsEmpty());
  EXPECT_EQ(to_config_text(back), text);
  EXPECT_EQ(back.optimizer.epsilon, 1.0000000000000002e-8);
}

TEST_F(ConfigReader, BaseIsTheWeakestLevel) {
  RunConfig base = read({"--parallel.tp", "4", "--train.seed", "5", "--data.train", "old"}).config;
  const RunConfig config = read({"--parallel.tp", "2", "--data.train", "new"}, {}, base).config;
  EXPECT_EQ(config.parallel.tp, 2);
  EXPECT_EQ(config.train.seed, 5);
  EXPECT_EQ(config.data.train.size(), 1u);
}

struct Shipped {
  std::string name;
  int tp, pp, ranks;
};

TEST_F(ConfigReader, ShippedSizesAreValidWithEachShift) {
  const std::string configs = std::string(SHIFTRON_SOURCE_DIR) + "/configs/";
  const std::vector<Shipped> sizes = {{"1.5b", 1, 1, 64}, {"2.9b", 2, 1, 512}, {"6.7b", 4, 2, 64},
                                      {"13b", 8, 2, 128}, {"19b", 8, 6, 240},  {"toy", 2, 1, 2},
                                      {"30m", 2, 7, 14},  {"124m", 4, 3, 24},  {"quickstart", 2, 2, 4}};
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs)) found += entry.path().extension() == ".conf";
  EXPECT_EQ(found, sizes.size() + 2);
  for (const Shipped& size : sizes) {
    for (const char* shift : {"vanilla", "kv-shift"}) {
      const ParsedConfig parsed =
          read({"--config", configs + size.name + ".conf", "--config", configs + shift + ".conf", "--parallel.tp",
                std::to_string(size.tp), "--parallel.pp", std::to_string(size.pp), "--data.train", "corpus",
                "--output.directory", "run"});
      EXPECT_THAT(find_faults(parsed.config, size.ranks), IsEmpty()) << size.name << " " << shift;
      EXPECT_EQ(parsed.config.model.shift.key, shift == std::string("vanilla") ? 0 : 1);
    }
  }
}

TEST_F(ConfigReader, ShippedSizesHaveTheirParameters) {
  // Parameters without norms and taps, from the shapes: what each file's name promises, in millions.
  const std::vector<std::pair<std::string, double>> sizes = {{"toy", 29.03}, {"30m", 29.03}, {"124m", 124.65},
                                                             {"1.5b", 1564}, {"2.9b", 2887}, {"6.7b", 6771},
                                                             {"13b", 13056}, {"19b", 19011}};
  for (const auto& [name, millions] : sizes) {
    const ModelConfig m =
        read({"--config", std::string(SHIFTRON_SOURCE_DIR) + "/configs/" + name + ".conf"}).config.model;
    const double layer = 2.0 * m.hidden * m.head_dim * (m.heads + m.kv_heads) + 3.0 * m.hidden * m.ffn;
    EXPECT_NEAR((m.layers * layer + 2.0 * m.vocab * m.hidden) / 1e6, millions, millions * 0.001) << name;
  }
}

TEST_F(ConfigReader, BlanksAroundASectionsNameAreNoPartOfIt) {
  const RunConfig config = read_config_text("[ train ]\nseed = 3\n  [\toptimizer]  # of it\nlearning_rate = 2\n", "t");
  EXPECT_THAT(config.reading_faults, IsEmpty());
  EXPECT_EQ(config.train.seed, 3);
  EXPECT_EQ(config.optimizer.learning_rate, 2);
  EXPECT_EQ(to_string(config.origins.at("optimizer.learning_rate")), "t:4");
}

}  // namespace
}  // namespace shiftron::cli
