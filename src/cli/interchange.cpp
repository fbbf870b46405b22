// `shiftron checkpoint export | import`: models to Hugging Face's format and from it.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "checkpoint/hugging_face_export.h"
#include "checkpoint/hugging_face_source.h"
#include "checkpoint/reader.h"
#include "checkpoint/step_writer.h"
#include "checkpoint/steps.h"
#include "cli/command.h"
#include "cli/model_card.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/version.h"
#include "core/check.h"
#include "core/file.h"
#include "core/progress.h"
#include "data/hugging_face_tokenizer.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/export_check.h"
#include "train/run_files.h"
#include "train/saved_state.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;
constexpr int64_t kLongestSequence = 4096;  // that an imported model is evaluated with unless it is said otherwise
constexpr uint64_t kLargestTokenizer = uint64_t{1} << 28;  // bytes

CommandOption with_choices(CommandOption option, std::vector<std::string> choices) {
  option.choices = std::move(choices);
  return option;
}

// Progress of bytes, shown from two seconds on.
std::function<void(uint64_t, uint64_t)> show_bytes(std::optional<Progress>& progress, const std::string& label) {
  return [&progress, label](uint64_t done, uint64_t total) {
    if (!progress) progress.emplace(label, total, "bytes");
    progress->update(done);
  };
}

SafetensorsType type_of(const CommandLine& line, Precision trained) {
  const std::string precision = line.text("precision", to_string(trained));
  return precision == "fp64"   ? SafetensorsType::F64
         : precision == "fp32" ? SafetensorsType::F32
                               : SafetensorsType::BF16;
}

HuggingFaceForm form_of(const CommandLine& line, const ShiftConfig& shift) {
  const bool shifts = shift.query + shift.key + shift.value > 0;
  return *from_string<HuggingFaceForm>(
      line.text("as", to_string(shifts ? HuggingFaceForm::kv_shift : HuggingFaceForm::llama)));
}

int run_export(const CommandLine& line) {
  outlive_failing_writes();
  const CheckpointModel model = open_checkpoint(line.text("directory"));
  StepReader source(model.directory, check_step(model.directory));
  HuggingFaceExport how;
  how.config = {.model = model.config.model,
                .form = form_of(line, model.config.model.shift),
                .type = type_of(line, model.config.train.precision),
                .positions = model.config.train.sequence_length};
  if (!model.content.tokenizer_model.empty()) {
    const Tokenizer tokenizer(model.content.tokenizer_model, model.directory);
    how.config.end_of_document = tokenizer.end_of_document();
    how.files = hugging_face_tokenizer(tokenizer);
    how.files["tokenizer.model"] = model.content.tokenizer_model;
  }
  std::optional<Progress> progress;
  how.progress = show_bytes(progress, "writing");
  ExportCheck check;
  how.check = [&](const std::string& directory) -> std::map<std::string, std::string> {
    progress.reset();
    check = check_export(source, how.config, directory);
    if (!check.passed) {
      throw_crash("the export is not the model: logits of ", check.tokens, " tokens differ by up to ",
                  check.largest_difference, ", ", check.allowed,
                  " is allowed; nothing is kept of it. Look at the step with `shiftron checkpoint verify`");
    }
    return {{"README.md", model_card(model, how.config, check)}};
  };
  const WrittenExport written = write_hugging_face(source, how, line.text("output"));
  const Json json = {{"directory", written.directory},
                     {"form", to_string(how.config.form)},
                     {"precision", precision_text(how.config.type)},
                     {"bytes", written.bytes},
                     {"files", written.files},
                     {"check",
                      {{"tokens", check.tokens},
                       {"largest_difference", check.largest_difference},
                       {"largest_logit", check.largest_logit},
                       {"allowed", check.allowed}}}};
  if (line.has("json")) {
    print_json(json);
    return 0;
  }
  std::cout << fmt::format(
      "{}: {} in {}, {:.1f} MB in {} files\nchecked on {} tokens: the largest difference of logits is {:.3g}, "
      "of logits up to {:.3g}\n",
      written.directory, to_string(how.config.form), precision_text(how.config.type),
      static_cast<double>(written.bytes) / 1e6, written.files.size(), check.tokens, check.largest_difference,
      check.largest_logit);
  return 0;
}

// The bytes of the directory's tokenizer.model where this program can use it; else empty, and `note` says why.
std::string usable_tokenizer(const std::string& directory, int64_t vocab, std::string& note) {
  const std::string path = directory + "/tokenizer.model";
  try {
    const Tokenizer tokenizer(read_file(path, kLargestTokenizer), path);
    if (tokenizer.vocab_size() <= vocab) return tokenizer.model_bytes();
    note = fmt::format("{} has {} tokens, the model {}", path, tokenizer.vocab_size(), vocab);
  } catch (const Error& error) {
    note = error.what();
  }
  return "";
}

// [model] and [shift], as a file of the configuration.
std::string model_sections(const RunConfig& config) {
  const std::string text = to_config_text(config);
  return text.substr(0, text.find("\n[train]"));
}

// An import needs a place that holds nothing but what a killed one left.
void refuse_what_is_there(const std::string& run) {
  if (!fs::exists(fs::symlink_status(run))) return;
  bool free = fs::is_directory(run) && list_steps(run + "/checkpoints").empty();
  if (free) {
    for (const auto& entry : fs::directory_iterator(run)) {
      const std::string name = entry.path().filename();
      free = free && (name == ".lock" || name == "checkpoints");
    }
  }
  if (!free) throw_bad_input(run, " is there already; name a new directory");
}

int run_import(const CommandLine& line) {
  outlive_failing_writes();
  const std::string from = line.text("directory"), run = line.text("output");
  refuse_what_is_there(run);
  HuggingFaceImport how{.previous = {}, .norm_head = line.has("norm-head")};
  const char* const keys[] = {"shift.query", "shift.key", "shift.value"};
  for (size_t stream = 0; stream < 3; ++stream) {
    if (line.has(keys[stream])) how.previous[stream] = static_cast<int>(line.integer(keys[stream]));
  }
  HuggingFaceSource source(from, how);
  RunConfig config;
  config.model = source.model();
  config.train.micro_batch = config.train.global_batch = 1;
  config.train.sequence_length = std::min(source.config().positions, kLongestSequence);
  if (const std::vector<std::string> faults = find_faults(config, 1, Use::evaluate); !faults.empty()) {
    std::string text;
    for (const std::string& fault : faults) text += "\n  " + fault;
    throw_bad_input(from, ": this model cannot be used:", text);
  }
  std::string note;
  const std::string tokenizer = usable_tokenizer(from, config.model.vocab, note);
  SavedState state;
  state.configuration = config;
  state.imported_from = from;
  const StepToWrite step{.content = {.step = 0,
                                     .configuration = to_config_text(config),
                                     .state_json = to_json(state),
                                     .tokenizer_model = tokenizer,
                                     .data_fingerprint = {},
                                     .code_version = version_text()},
                         .files = one_file(source.tensors())};
  const bool was_there = fs::exists(run);
  Log log;
  std::unique_ptr<DirectoryLock> lock = open_run(run, log);  // a second import there is refused
  refuse_what_is_there(run);
  WrittenStep written;
  std::optional<Progress> progress;
  try {
    written = write_step(source, step, run + "/checkpoints", {.progress = show_bytes(progress, "writing")});
    write_file_durably(run + "/config.conf", model_sections(config));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(run + "/checkpoints", ignored);
    fs::remove(run + "/config.conf", ignored);
    lock.reset();
    if (!was_there) fs::remove(run, ignored);
    throw;
  }
  progress.reset();
  if (!tokenizer.empty()) note.clear();
  const std::string next =
      "shiftron train --config " + run + "/config.conf --config YOURS.conf --output.directory " + run;
  if (line.has("json")) {
    print_json({{"directory", written.directory},
                {"config", run + "/config.conf"},
                {"form", to_string(source.config().form)},
                {"bytes", written.bytes},
                {"parameters", parameter_count(config.model)},
                {"tokenizer", !tokenizer.empty()},
                {"next", next}});
    return 0;
  }
  std::cout << fmt::format("{}: {} of {} parameters beside taps, {:.1f} MB\n", written.directory,
                           to_string(source.config().form), parameter_count(config.model),
                           static_cast<double>(written.bytes) / 1e6);
  if (!note.empty()) std::cout << "without a tokenizer: " << note << "\n";
  std::cout << "next: " << next << "\n";
  return 0;
}

}  // namespace

std::vector<Command> interchange_commands() {
  const CommandOption format =
      required(with_choices(text_option("format", "hf", "Hugging Face's: safetensors and config.json"), {"hf"}));
  const auto previous = [](const std::string& stream) {
    return whole_option("shift." + stream,
                        "previous tokens mixed into each " + stream +
                            " (default: what the files hold); taps that they lack begin as the identity",
                        between(0, 3));
  };
  return {
      {"checkpoint",
       "export",
       "writes a step's model as a directory that transformers loads, and checks what it computes",
       "STEP_DIR --format hf --output DIR [--as llama|kv-shift|canon] [--precision fp32|bf16]",
       {directories("a step"), format,
        with_choices(
            text_option("as", "FORM", "llama, kv-shift or canon (default: kv-shift, and llama where nothing shifts)"),
            {"llama", "kv-shift", "canon"}),
        with_choices(
            text_option("precision", "fp32|bf16", "of the weights (default: what the run computed in); or fp64"),
            {"fp32", "bf16", "fp64"}),
        required(text_option("output", "DIR", "a new directory")), json_flag()},
       false,
       run_export},
      {"checkpoint",
       "import",
       "makes step 0 of a new run from a directory of Hugging Face's",
       "DIR --format hf --output RUN [--shift.key N …] [--norm-head]",
       {directories("config.json and safetensors"), format,
        required(text_option("output", "RUN", "a new run's directory")), previous("query"), previous("key"),
        previous("value"),
        flag("norm-head", "divide every row of the head by its length, as models with NormHead do when they compute"),
        json_flag()},
       false,
       run_import}};
}

}  // namespace shiftron::cli
