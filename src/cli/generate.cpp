// Texts or ids in, continuations out.
#include "cli/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/standard_descriptors.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/progress.h"
#include "evaluate/continue_ids.h"
#include "parallel/agree.h"
#include "run/run_files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

// What to continue. Only rank 0 reads it: mpirun gives stdin to that rank alone.
struct Prompts {
  std::vector<std::vector<int32_t>> ids;  // on every rank
  std::vector<std::string> texts;         // on rank 0; none for --ids
};

Prompts shared_prompts(const CommandLine& line, const TokenVocabulary& vocabulary, const Tokenizer* tokenizer,
                       HostCommunicator& world) {
  Prompts prompts;
  run_on_first_rank(world, [&] {
    if (line.has("ids")) {
      prompts.ids = read_prompts(line.text("ids"), vocabulary);
      return;
    }
    prompts.texts =
        line.has("prompts") ? read_text_prompts(line.text("prompts")) : std::vector<std::string>{line.text("prompt")};
    for (const std::string& text : prompts.texts) prompts.ids.push_back(tokenizer->encode(text));
  });
  prompts.ids = nlohmann::json::parse(world.broadcast_text(nlohmann::json(prompts.ids).dump(), 0))
                    .get<std::vector<std::vector<int32_t>>>();
  return prompts;
}

// Writes continuations on rank 0: as text while it is generated, or as lines of JSON.
class Continuations {
 public:
  Continuations(const CommandLine& line, const Prompts& prompts, const Tokenizer* tokenizer)
      : prompts_(prompts),
        tokenizer_(tokenizer),
        as_text_(!prompts.texts.empty() && !line.has("json")),
        complete_(line.has("json")),
        output_(line.text("output")),
        samples_(line.integer("samples")),
        on_terminal_(is_terminal()) {
    const uint64_t count = prompts.ids.size() * static_cast<uint64_t>(samples_);
    if (!as_text_ || !output_.empty()) progress_.emplace("generate", count, "continuations");
  }

  void show(int32_t token) {
    if (!as_text_) return;
    begin();
    unfinished_ += tokenizer_->text_of(token);  // the tokens of a character may come one by one
    const size_t whole = unfinished_.size() - unfinished_bytes(unfinished_);
    write(unfinished_.substr(0, whole));
    unfinished_.erase(0, whole);
  }

  void take(const Continuation& made) {
    if (as_text_) {
      begin();
      write(std::exchange(unfinished_, "") + "\n");
    } else {
      write(json_text(to_json(made)) + "\n");
    }
    is_begun_ = false;
    ++finished_;
    if (progress_) progress_->advance(1);
  }

  void finish() {
    if (progress_) progress_->finish();
    if (!output_.empty()) write_file_durably(output_, held_);
  }

 private:
  // Open MPI's mpirun gives each rank a terminal that is not the user's, MPICH's a pipe; launch/local says whether it
  // prints to a terminal.
  static bool is_terminal() {
    const bool launched = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    return std::getenv("SHIFTRON_ON_TERMINAL") != nullptr || (!launched && ::isatty(STDOUT_FILENO) == 1);
  }

  // Writes the prompt once it has a continuation or ends; an empty line separates continuations.
  void begin() {
    if (is_begun_) return;
    is_begun_ = true;
    write((finished_ > 0 ? "\n" : "") + prompts_.texts[static_cast<size_t>(finished_ / samples_)]);
  }

  // Text is printed unchanged, except on a terminal, which it could control.
  void write(const std::string& text) {
    if (!output_.empty()) {
      held_ += text;
    } else if (on_terminal_ || !as_text_) {
      std::cout << text << std::flush;
    } else {
      write_to_stdout(text);
    }
  }

  Json to_json(const Continuation& made) const {
    if (!complete_) return {{"ids", made.ids}, {"ended", made.ended}};
    const auto number = static_cast<size_t>(made.prompt);
    return {{"prompt", prompts_.texts.empty() ? Json(prompts_.ids[number]) : Json(prompts_.texts[number])},
            {"sample", made.sample},
            {"text", tokenizer_ == nullptr ? Json(nullptr) : Json(tokenizer_->decode(made.ids))},
            {"ids", made.ids},
            {"ended", made.ended},
            {"log_probability", json_number(made.log_probability)}};
  }

  const Prompts& prompts_;
  const Tokenizer* const tokenizer_;  // null if the checkpoint has none
  const bool as_text_;
  const bool complete_;  // JSON with every key
  const std::string output_;
  const int64_t samples_;
  const bool on_terminal_;
  std::optional<Progress> progress_;
  std::string held_;        // for --output
  std::string unfinished_;  // first bytes of a character that the next tokens may finish
  int64_t finished_ = 0;
  bool is_begun_ = false;
};

GenerateOptions generation_of(const CommandLine& line) {
  return {.tokens = line.integer("tokens"),
          .sampling = {.temperature = line.real("temperature"),
                       .top_k = line.integer("top-k"),
                       .top_p = line.real("top-p"),
                       .seed = static_cast<uint64_t>(line.integer("seed"))},
          .scores = line.has("json")};
}

void refuse_output(const CommandLine& line) {
  if (line.text("output").empty()) return;
  std::vector<InputFile> inputs;
  for (const char* name : {"prompts", "ids"}) {
    if (line.has(name) && line.text(name) != kStdin) inputs.push_back({.path = line.text(name)});
  }
  refuse_as_output(line.text("output"), inputs);
}

}  // namespace

std::vector<CommandOption> generate_options() {
  return {
      required(text_option("checkpoint", "STEP_DIR", "a step directory of a run")),
      text_option("prompt", "TEXT", "text to continue"),
      text_option("prompts", "FILE",
                  "file with one prompt per line: text, or {\"prompt\": \"...\"} if it ends in .jsonl; - = stdin"),
      text_option("ids", "FILE",
                  "JSONL file of prompts {\"ids\": [...]}; prints for each {\"ids\": [continuation...], "
                  "\"ended\": whether the end-of-document token ended it}; - = stdin"),
      integer_option("end-of-document", "id that ends a document, for --ids with a checkpoint that does not state it",
                     between(0, INT32_MAX)),
      text_option("output", "FILE", "file for the continuations, instead of stdout; an existing file is replaced"),
      json_flag(),
      integer_option("tokens", "maximum number of new tokens per continuation", between(1, 1'000'000), "64"),
      integer_option("samples", "continuations per prompt", between(1, 1'000'000), "1"),
      real_option("temperature", "sampling temperature; 0 = always the most likely token", at_least(0), "0"),
      integer_option("top-k", "sample from the N most likely tokens only; 0 = all", between(0, INT32_MAX), "0"),
      real_option("top-p", "then from the fewest most likely tokens whose probabilities reach this sum; 1 = all",
                  {.low = 0, .high = 1, .low_open = true}, "1"),
      integer_option("seed", "random seed of the sampling", at_least(0), "0")};
}

void check_generate_options(CommandLine& line) {
  std::string first;
  for (const char* name : {"prompt", "prompts", "ids"}) {
    if (!line.has(name)) continue;
    if (!first.empty())
      line.faults.push_back(fmt::format("--{} and --{} both define what to continue; omit one", first, name));
    first = name;
  }
  if (line.has("end-of-document") && !line.has("ids"))
    line.faults.emplace_back("--end-of-document only applies with --ids; omit it");
  double temperature = 0;
  if (!read_value(line.text("temperature"), temperature).empty() || temperature != 0) return;
  const auto does_nothing = [&](const std::string& name) {
    return line.has(name) && (name != "samples" || line.integer(name) > 1);
  };
  for (const char* name : {"top-k", "top-p", "samples"}) {
    if (!does_nothing(name)) continue;
    line.faults.push_back(
        fmt::format("--{} {} does nothing at --temperature 0, which always takes the most likely token; "
                    "omit it, or give --temperature 1",
                    name, printable(line.text(name))));
  }
}

void run_prompts(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world,
                 const HostShare& share) {
  TokenVocabulary vocabulary;
  std::unique_ptr<const Tokenizer> tokenizer;
  run_on_all_ranks(world, [&] {
    tokenizer = line.has("ids") ? usable_tokenizer(model.content.tokenizer, model.directory) : tokenizer_of(model);
    std::optional<int32_t> end;
    if (line.has("end-of-document")) end = static_cast<int32_t>(line.integer("end-of-document"));
    vocabulary = vocabulary_of_ids(model, tokenizer.get(), end);
  });
  const Tokenizer* const texts = tokenizer.get();
  run_on_first_rank(world, [&] { refuse_output(line); });
  const Prompts prompts = shared_prompts(line, vocabulary, texts, world);
  std::optional<Continuations> writer;  // on rank 0
  if (world.rank() == 0) writer.emplace(line, prompts, texts);
  const auto take = [&](const Continuation& made) {
    if (writer) writer->take(made);
  };
  const auto show = [&](int32_t token) {
    if (writer) writer->show(token);
  };
  continue_prompts(model, prompts.ids, vocabulary, generation_of(line), line.integer("samples"), world, share, take,
                   show);
  if (writer) writer->finish();
}

}  // namespace shiftron::cli
