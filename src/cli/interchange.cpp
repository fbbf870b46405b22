// `shiftron checkpoint export | import`: models to other programs' formats and from them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/reader.h"
#include "checkpoint/step_writer.h"
#include "checkpoint/steps.h"
#include "cli/byte_progress.h"
#include "cli/command.h"
#include "cli/exports.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/tokenizer_options.h"
#include "cli/version.h"
#include "config/faults.h"
#include "config/validate.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "evaluate/checkpoint_model.h"
#include "interchange/export_check.h"
#include "interchange/hugging_face_source.h"
#include "interchange/import_run.h"
#include "interchange/megatron_source.h"
#include "run/saved_state.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;
constexpr int64_t kLongestSequence = 4096;  // with which another program's model is evaluated

CommandOption with_choices(CommandOption option, std::vector<std::string> choices) {
  option.choices = std::move(choices);
  return option;
}

// What an import reads, and what is reported about it.
struct Origin {
  std::unique_ptr<TensorSource> tensors;
  ForeignModel model;
  std::string form;                  // in words
  std::vector<std::string> notes{};  // what about it may be unexpected
};

// A format: its name and description, and the options it takes in addition to the common ones.
struct Format {
  const char* name;
  const char* what;
  std::vector<std::string> options;
  std::vector<std::string> precisions{};                            // values of --precision
  int (*run_export)(const CommandLine&, const CheckpointModel&){};  // null: it can only be read
  Origin (*open)(const CommandLine& line){};                        // null: it can only be written
};
const std::vector<Format>& formats();

const char* const kOwnOptions[] = {"as",          "precision", "shift.query",     "shift.key",
                                   "shift.value", "norm-head", "end-of-document", "beginning-of-document",
                                   "special-text"};

// The format that --format names. Throws Error(bad_input) if an option or its value belongs to another format.
const Format& format_of(const CommandLine& line) {
  const std::string name = line.text("format");
  const Format& format = *std::ranges::find_if(formats(), [&](const Format& one) { return name == one.name; });
  for (const std::string option : kOwnOptions) {
    if (line.has(option) && std::ranges::find(format.options, option) == format.options.end()) {
      throw_bad_input("--format ", name, " does not use --", option, "; omit it");
    }
  }
  const auto& precisions = format.precisions;
  if (line.has("precision") && std::ranges::find(precisions, line.text("precision")) == precisions.end()) {
    throw_bad_input("--format ", name, " takes --precision ", fmt::format("{}", fmt::join(precisions, "|")), ", not ",
                    line.text("precision"));
  }
  return format;
}

// A step of which only the model is used, not its layout and device. Throws Error(bad_input) with every fault of the
// configuration that it holds.
CheckpointModel open_valid_step(const std::string& directory) {
  CheckpointModel step = open_checkpoint(directory);
  RunConfig alone;
  alone.model = step.config.model;
  alone.train.micro_batch = alone.train.global_batch = 1;
  alone.train.precision = step.config.train.precision;
  alone.train.sequence_length = step.config.train.sequence_length;
  alone.reading_faults = step.config.reading_faults;
  refuse_faults(find_faults(alone, 1, Use::evaluate), "the configuration of " + directory);
  return step;
}

int run_export(const CommandLine& line) {
  ignore_write_signals();
  const Format& format = format_of(line);
  const CheckpointModel model = open_valid_step(line.text("directory"));
  require_memory_of_check(model.config.model);
  return format.run_export(line, model);
}

// No other tokenizer fits a model that was trained with one.
const std::string kOtherPrograms =
    "to prepare data for this model, use the programs that it comes from (docs/dataset-format.md describes datasets); "
    "to generate text, use transformers with `shiftron checkpoint export --format hf`";

// Takes the directory's tokenizer if this program can use it; otherwise says why not, and what to do. Adds a note if
// its end of documents is not among the model's. Throws Error(bad_input) if it cannot be used with an option of the
// line.
void take_tokenizer(const CommandLine& line, ForeignModel& model, std::vector<std::string>& notes) {
  const std::string directory = line.text("directory");
  const bool is_chosen = has_tokenizer_choice(line);
  const std::vector<std::string> names = tokenizer_file_names();
  if (std::ranges::none_of(names, [&](const std::string& name) { return name_exists(directory + "/" + name); })) {
    model.without_tokenizer = fmt::format("{} has no {}; put the model's tokenizer there and import again", directory,
                                          fmt::join(names, " or "));
    if (is_chosen) throw_bad_input(model.without_tokenizer);
    return;
  }
  try {
    const std::unique_ptr<const Tokenizer> tokenizer =
        load_tokenizer(directory, tokenizer_choice(line), kOtherPrograms);
    const std::string& path = tokenizer->name();
    const std::string fault = vocab_fault(*tokenizer, model.model.vocab, path);
    if (fault.empty()) model.tokenizer = stored_form(*tokenizer);
    if (!fault.empty()) model.without_tokenizer = fault + "; put the model's own tokenizer there and import again";
    const std::vector<int64_t>& ends = model.origin.end_tokens;
    const int64_t own = tokenizer->end_of_document();
    if (fault.empty() && !ends.empty() && std::ranges::find(ends, own) == ends.end()) {
      notes.push_back(
          fmt::format("eos_token_id is {}, but {} ends documents with {}: `shiftron generate` ends a text only with "
                      "{}; an export also ends it with as many of the others as its format allows",
                      fmt::join(ends, ", "), path, own, own));
    }
  } catch (const Error& error) {
    rethrow_system_error(error);
    if (is_chosen) throw;
    model.without_tokenizer = error.what();
  }
}

std::array<std::optional<int>, 3> requested_previous_tokens(const CommandLine& line) {
  const char* const keys[] = {"shift.query", "shift.key", "shift.value"};
  std::array<std::optional<int>, 3> previous;
  for (size_t stream = 0; stream < 3; ++stream) {
    if (line.has(keys[stream])) previous[stream] = static_cast<int>(line.integer(keys[stream]));
  }
  return previous;
}

Origin origin_of(std::unique_ptr<SafetensorsSource> source, const CommandLine& line) {
  const std::string from = line.text("directory");
  const bool is_wide = source->tensors().front().dtype == DType::float64;
  const HuggingFaceConfig& config = source->config();
  Origin origin{.tensors = {},
                .model = {.from = from,
                          .model = config.model,
                          .sequence_length = std::min(config.positions, kLongestSequence),
                          .precision = is_wide ? Precision::fp64 : Precision::fp32,
                          .tokenizer = {},
                          .without_tokenizer = {},
                          .origin = {.from = from,
                                     .positions = config.positions,
                                     .end_tokens = config.end_tokens,
                                     .begin_token = config.begin_token}},
                .form = to_string(config.form),
                .notes = config.notes};
  take_tokenizer(line, origin.model, origin.notes);
  origin.tensors = std::move(source);
  return origin;
}

Origin open_hugging_face(const CommandLine& line) {
  const HuggingFaceImport how{.previous = requested_previous_tokens(line), .norm_head = line.has("norm-head")};
  return origin_of(std::make_unique<HuggingFaceSource>(line.text("directory"), how), line);
}

Origin open_megatron(const CommandLine& line) {
  return origin_of(std::make_unique<MegatronSource>(line.text("directory"), requested_previous_tokens(line)), line);
}

// A step of ours, of which only the parameters are taken.
Origin open_step(const CommandLine& line) {
  CheckpointModel step = open_valid_step(line.text("directory"));
  const RunConfig& config = step.config;
  const SavedState state = saved_state(step.content.state_json, step.directory);
  ModelOrigin origin = state.origin;
  std::vector<int64_t>& ends = origin.end_tokens;
  const bool is_known = !state.end_of_document || std::ranges::find(ends, *state.end_of_document) != ends.end();
  if (!is_known) ends.insert(ends.begin(), *state.end_of_document);
  origin.from += (origin.from.empty() ? "" : ", then ") + step.directory;
  origin.positions = std::max(origin.positions, config.train.sequence_length);
  return {.tensors = std::make_unique<StepReader>(step.directory, check_step(step.directory)),
          .model = {.from = step.directory,
                    .model = config.model,
                    .sequence_length = config.train.sequence_length,
                    .precision = config.train.precision,
                    .document_reset = config.data.document_reset,
                    .tokenizer = std::move(step.content.tokenizer),
                    .without_tokenizer = state.without_tokenizer,
                    .origin = std::move(origin)},
          .form = "shiftron"};
}

const std::vector<Format>& formats() {
  static const std::vector<Format> table = {
      {"hf",
       "Hugging Face, safetensors and config.json",
       {"as", "precision", "shift.query", "shift.key", "shift.value", "norm-head", "end-of-document",
        "beginning-of-document", "special-text"},
       {"fp32", "bf16", "fp64"},
       export_hugging_face,
       open_hugging_face},
      {"gguf", "llama.cpp, only models without shift", {"precision"}, {"f32", "f16", "bf16"}, export_gguf, nullptr},
      {"megatron",
       "Megatron-LM, tensors in safetensors",
       {"shift.query", "shift.key", "shift.value", "end-of-document", "beginning-of-document", "special-text"},
       {},
       nullptr,
       open_megatron},
      {"shiftron", "parameters of a step of a run", {}, {}, nullptr, open_step}};
  return table;
}

// --format, with the formats for which `has` is true.
CommandOption format_option(bool (*has)(const Format&)) {
  std::vector<std::string> names, texts;
  for (const Format& format : formats()) {
    if (!has(format)) continue;
    names.push_back(format.name);
    texts.push_back(std::string(format.name) + ": " + format.what);
  }
  return required(with_choices(
      text_option("format", fmt::format("{}", fmt::join(names, "|")), fmt::format("{}", fmt::join(texts, "; "))),
      names));
}

// A step records in JSON, which is UTF-8, where its model comes from.
void refuse_names_without_utf8(const CommandLine& line) {
  const std::string from = line.text("directory");
  if (!is_utf8(from)) throw_bad_input(printable(from), " must be UTF-8; rename it");
}

Origin open_as(const Format& format, const CommandLine& line) {
  try {
    return format.open(line);
  } catch (const Error& error) {
    rethrow_system_error(error);
    const std::string other = import_format_of(line.text("directory"));
    if (other.empty() || other == format.name || format.open == open_step) throw;
    throw_bad_input(line.text("directory"), " seems to be in the format ", other, "; give --format ", other, " (as ",
                    format.name, ": ", error.what(), ")");
  }
}

void report_import(const CommandLine& line, const Origin& origin, const ImportedRun& made) {
  const ModelConfig& model = origin.model.model;
  const bool has_tokenizer = origin.model.tokenizer.is_there();
  std::vector<std::string> notes = origin.notes;
  if (!made.warning.empty()) notes.push_back(made.warning);
  const std::string next = "shiftron train --config " + shell_word(made.config_file) +
                           " --config YOURS.conf --output.directory " + shell_word(line.text("output"));
  if (line.has("json")) {
    Json json = {{"directory", made.step.directory},
                 {"was_there", made.was_there},
                 {"config", made.config_file},
                 {"form", origin.form},
                 {"bytes", made.step.bytes},
                 {"parameters", parameter_count(model)},
                 {"tokenizer", has_tokenizer},
                 {"without_tokenizer", origin.model.without_tokenizer},
                 {"next", next}};
    if (!notes.empty()) json["note"] = fmt::format("{}", fmt::join(notes, "\n"));
    print_json(json);
    return;
  }
  if (made.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
  std::cout << fmt::format("{}: {} of {} parameters, {:.1f} MB\n", made.step.directory, origin.form,
                           parameter_count(model), static_cast<double>(made.step.bytes) / 1e6);
  if (!has_tokenizer) std::cout << "without a tokenizer: " << printable_value(origin.model.without_tokenizer) << "\n";
  for (const std::string& note : notes) std::cout << "note: " << printable_value(note) << "\n";
  std::cout << "next: " << next << "\n";
}

// The same for the same files, as long as they do not change, and the same options.
std::string request_of(const CommandLine& line) {
  std::string words = "import\n" + line.text("format") + "\n" + state_of_files(line.text("directory"));
  for (const char* option : kOwnOptions) {
    words += line.has(option) ? std::string(option) + " " + line.text(option) + "\n" : "";
  }
  return to_hex(xxh3_128(words));
}

int run_import(const CommandLine& line) {
  ignore_write_signals();
  refuse_names_without_utf8(line);
  const Origin origin = open_as(format_of(line), line);
  Log log;
  ByteProgress progress("writing");
  ImportOptions options;
  options.request = request_of(line);
  options.write.threads = thread_count(0);
  options.write.progress = progress.callback();
  options.notify = [&](const ImportedRun& made) {
    progress.finish();
    report_import(line, origin, made);
    std::cout.flush();
  };
  import_run(*origin.tensors, origin.model, line.text("output"), version_text(), log, options);
  return 0;
}

}  // namespace

std::vector<Command> interchange_commands() {
  const auto previous = [](const std::string& stream) {
    return integer_option("shift." + stream,
                          "number of previous tokens mixed into each " + stream +
                              " (default: as in the files); taps that the files lack start as the identity",
                          between(0, 3));
  };
  const CommandOption end = tokenizer_options().front();
  return {
      {"checkpoint",
       "export",
       "writes a step's model for transformers (hf) or llama.cpp (gguf), and checks its logits",
       "STEP_DIR --format hf|gguf --output PATH [--as llama|kv-shift|canon] [--precision P]",
       {directories("a step"), format_option([](const Format& one) { return one.run_export != nullptr; }),
        with_choices(
            text_option(
                "as", "FORM",
                "model class, of hf: llama, kv-shift or canon (default: kv-shift, or llama if the model has no shift)"),
            {"llama", "kv-shift", "canon"}),
        with_choices(text_option("precision", "P",
                                 "type of the weights (default: the run's train.precision): fp32, bf16 or fp64; for "
                                 "gguf f32, f16 or bf16, norms always in f32"),
                     {"fp32", "bf16", "fp64", "f32", "f16"}),
        required(text_option("output", "PATH", "new directory; for gguf, new file")), json_flag()},
       false,
       run_export,
       "shiftron checkpoint export run/checkpoints/step-00001000 --format hf --output exported"},
      {"checkpoint",
       "import",
       "makes step 0 of a new run from a model of Hugging Face or Megatron-LM, or from a step's parameters",
       "DIR --format hf|megatron|shiftron --output RUN [--shift.key N …] [--norm-head]",
       {directories("directory with config.json and safetensors, or a step"),
        format_option([](const Format& one) { return one.open != nullptr; }),
        required(text_option("output", "RUN", "directory of the new run")), previous("query"), previous("key"),
        previous("value"),
        flag("norm-head",
             "divide each row of the output head by its norm, as models with NormHead do during inference"),
        end, beginning_of_document(), special_text(), json_flag()},
       false,
       run_import,
       "shiftron checkpoint import downloaded --format hf --output imported"}};
}

}  // namespace shiftron::cli
