// `shiftron checkpoint list | inspect | verify | convert | consolidate | prune`.
#include "cli/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "cli/byte_progress.h"
#include "cli/command.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/progress.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "evaluate/checkpoint_model.h"
#include "interchange/step_directory.h"
#include "run/prune.h"
#include "run/run_files.h"
#include "train/convert.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

int list(const CommandLine& line) {
  const bool as_json = line.has("json");
  std::string directory = line.text("directory");
  refuse_lost_link(directory);
  if (!std::filesystem::is_directory(directory)) throw_bad_input(directory, " is not a directory; check the path");
  if (std::filesystem::exists(directory + "/" + kManifestName)) {
    throw_bad_input(directory, " is itself a step; `shiftron checkpoint inspect ", shell_word(directory),
                    "` shows its content");
  }
  refuse_lost_link(checkpoints_of(directory));
  if (std::filesystem::is_directory(checkpoints_of(directory))) directory = checkpoints_of(directory);
  Json answer = Json::array();
  const std::vector<StepDirectory> steps = list_steps(directory);
  std::exception_ptr refusal;  // of the first step that could not be read; the others are listed too
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    Json row = {{"step", entry->step}, {"directory", entry->path}, {"valid", true}};
    try {
      const Manifest manifest = check_step(entry->path);
      row["bytes"] = manifest.bytes();
      row["files"] = manifest.files.size();
    } catch (const Error& error) {
      if (step_was_removed(entry->path)) continue;  // after its name was read
      const bool unreadable = dynamic_cast<const SystemError*>(&error) != nullptr;
      if (unreadable && !refusal) refusal = std::current_exception();
      row["valid"] = unreadable ? Json() : Json(false);
      row["fault"] = error.what();
    }
    if (!as_json) {
      std::cout << printable_line(row["directory"].get<std::string>()) << ": "
                << (row.contains("bytes") ? row["bytes"].dump() + " bytes in " + row["files"].dump() + " files"
                                          : (row["valid"].is_null() ? "not readable: " : "not valid: ") +
                                                printable_value(row["fault"].get<std::string>()))
                << "\n";
    }
    answer.push_back(std::move(row));
  }
  if (as_json) {
    print_json(answer);
  } else if (steps.empty()) {
    std::cout << directory << " contains no steps\n";
  }
  if (refusal) std::rethrow_exception(refusal);
  return 0;
}

Json describe(const std::string& directory, const Manifest& manifest) {
  Json json = {{"directory", directory},
               {"step", manifest.step},
               {"bytes", manifest.bytes()},
               {"code_version", manifest.code_version},
               {"data_fingerprint", manifest.data_fingerprint},
               {"writer_layout",
                {{"tp", manifest.writer.tp},
                 {"cp", manifest.writer.cp},
                 {"dp", manifest.writer.dp},
                 {"pp", manifest.writer.pp}}},
               {"state", Json::parse(manifest.state_json)},
               {"configuration", manifest.configuration}};
  int64_t parameters = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.group == TensorGroup::parameters) parameters += tensor.shape.count();
  }
  json["parameters"] = parameters;
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", to_hex(file.hash)}});
  }
  return json;
}

int inspect_checkpoint(const CommandLine& line) {
  const bool with_digests = line.has("digest");
  const std::string directory = step_argument(line);
  const Manifest manifest = check_step(directory);
  StepDigest digest;
  if (with_digests) {
    ByteProgress progress("hashing");
    digest = digest_step(directory, progress.callback());
  }
  const std::vector<TensorDigest>& digests = digest.tensors;
  std::vector<int64_t> boxes(manifest.tensors.size(), 0);
  for (const ManifestBox& box : manifest.boxes) ++boxes[static_cast<size_t>(box.tensor)];
  Json json = describe(directory, manifest);
  if (with_digests) {
    json["digest"] = {{"parameters", to_hex(digest.parameters)}};
    if (digest.moments) json["digest"]["moments"] = to_hex(*digest.moments);
  }
  json["tensors"] = Json::array();
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    Json entry = {{"path", tensor.path()},
                  {"shape", shape_json(tensor.shape)},
                  {"dtype", name_of(tensor.dtype)},
                  {"boxes", boxes[i]}};
    if (with_digests) {
      entry["xxh3_128"] = to_hex(digests[i].hash);
      entry["tree"] = to_hex(digests[i].tree);
    }
    json["tensors"].push_back(std::move(entry));
  }
  if (line.has("json")) {
    print_json(json);
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (value.is_array() || key == "configuration") continue;
    std::cout << key << ": " << (value.is_string() ? printable_value(value.get<std::string>()) : value.dump()) << "\n";
  }
  for (const Json& file : json["files"]) {
    std::cout << printable_line(file["name"].get<std::string>()) << ": " << file["bytes"] << " bytes\n";
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    std::cout << printable_line(tensor.path()) << " " << tensor.shape.text() << " " << name_of(tensor.dtype) << " in "
              << boxes[i] << (boxes[i] == 1 ? " box" : " boxes")
              << (with_digests ? " " + to_hex(digests[i].hash) + " tree " + to_hex(digests[i].tree) : "") << "\n";
  }
  std::cout << "\n" << manifest.configuration;
  return 0;
}

int verify_checkpoint(const CommandLine& line) {
  const std::string directory = step_argument(line);
  std::vector<std::string> faults;
  {
    ByteProgress progress("verifying");
    faults = verify_step(directory, progress.callback());
  }
  if (line.has("json")) {
    print_json({{"directory", directory}, {"valid", faults.empty()}, {"faults", faults}});
  } else {
    for (const std::string& fault : faults) std::cout << printable_value(fault) << "\n";
    if (faults.empty()) std::cout << directory << ": no fault\n";
  }
  return static_cast<int>(faults.empty() ? ExitCode::done : ExitCode::no_checkpoint);
}

// The next command to run with a converted step.
std::string next_command(const ConvertedStep& made, const std::string& output) {
  if (!made.can_train) return "shiftron evaluate --checkpoint " + shell_word(made.directory) + " --data DIR";
  const int64_t ranks = made.layout.ranks();
  return fmt::format("{} train --config {}{} --output.directory {}",
                     ranks == 1 ? "shiftron" : fmt::format("launch/local {}", ranks), shell_word(made.config_file),
                     made.has_training_keys ? "" : " --config YOURS.conf", shell_word(output));
}

void report_conversion(const CommandLine& line, const ConvertedStep& made) {
  const std::string next = next_command(made, line.text("output"));
  if (line.has("json")) {
    print_json(
        {{"step", line.texts("directory").at(0)},
         {"directory", made.directory},
         {"was_there", made.was_there},
         {"configuration", made.config_file},
         {"layout", {{"tp", made.layout.tp}, {"cp", made.layout.cp}, {"dp", made.layout.dp}, {"pp", made.layout.pp}}},
         {"files", made.files},
         {"bytes", made.bytes},
         {"next", next}});
    return;
  }
  if (made.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
  std::cout << fmt::format("{}: {} bytes in {} {} of tensors, {}\nnext: {}\n", made.directory, made.bytes, made.files,
                           made.files == 1 ? "file" : "files", text_of(made.layout), next);
}

int convert_to(const CommandLine& line, const std::string& layout) {
  ignore_write_signals();
  const std::string directory = step_argument(line), output = line.text("output");
  ConvertOptions options;
  options.drop_optimizer = line.has("drop-optimizer");
  if (line.has("precision")) options.precision = line.text("precision") == "bf16" ? DType::bfloat16 : DType::float32;
  Log log;
  ByteProgress progress("writing");
  options.write.progress = progress.callback();
  options.write.threads = thread_count(0);
  options.notify = [&](const ConvertedStep& made) {
    progress.finish();
    report_conversion(line, made);
    std::cout.flush();
  };
  convert_step(directory, layout, output, log, options);
  return 0;
}

int convert(const CommandLine& line) {
  return convert_to(line, line.text("layout"));
}

// A run of one rank has one file that holds every tensor whole.
int consolidate(const CommandLine& line) {
  return convert_to(line, "tp=1,pp=1,dp=1");
}

int prune_run(const CommandLine& line) {
  const std::string run = line.text("directory");
  const auto given = [&](const char* name) {
    return line.has(name) ? std::optional(line.integer(name)) : std::nullopt;
  };
  const bool removes = line.has("yes");
  Pruning pruning;
  {
    ByteProgress progress("verifying");
    pruning = (removes ? prune : plan_pruning)(run, given("keep"), given("keep-every"), progress.callback());
  }
  uint64_t bytes = 0;
  Json steps = Json::array();
  for (const SuperfluousStep& entry : pruning.steps) {
    bytes += entry.bytes;
    steps.push_back({{"step", entry.step.step}, {"directory", entry.step.path}, {"bytes", entry.bytes}});
  }
  Json leftovers = Json::array();
  for (const Leftover& left : pruning.leftovers) leftovers.push_back({{"directory", left.path}, {"bytes", left.bytes}});
  if (line.has("json")) {
    print_json({{"run", run},
                {"removed", removes},
                {"keep", pruning.keep},
                {"keep_every", pruning.keep_every},
                {"bytes", bytes},
                {"steps", steps},
                {"leftovers", leftovers}});
    return 0;
  }
  const char* did = removes ? "removed" : "would remove";
  const char* by = removes ? "left by an interrupted save or removal"
                           : "left by a save or removal that was interrupted or is still running";
  for (const Leftover& left : pruning.leftovers) {
    std::cout << did << " " << left.path << ", " << left.bytes << " bytes, " << by << "\n";
  }
  for (const SuperfluousStep& entry : pruning.steps) {
    std::cout << did << " " << entry.step.path << ", " << entry.bytes << " bytes\n";
  }
  std::cout << fmt::format("{} {} {}, {} bytes (keep {}, keep_every {}){}\n", did, steps.size(),
                           steps.size() == 1 ? "step" : "steps", bytes, pruning.keep, pruning.keep_every,
                           removes || (steps.empty() && leftovers.empty()) ? "" : "; nothing is removed without --yes");
  return 0;
}

// Options of convert and consolidate; `options` holds `layout` or nothing.
std::vector<CommandOption> writing_options(std::vector<CommandOption> options) {
  options.insert(options.begin(), directories("a step"));
  options.push_back(
      required(text_option("output", "DIR", "new directory; gets DIR/checkpoints/step-S and DIR/config.conf")));
  CommandOption precision = text_option(
      "precision", "bf16|fp32", "cast the parameters to this type (default: keep their type); needs --drop-optimizer");
  precision.choices = {"bf16", "fp32"};
  options.push_back(precision);
  options.push_back(flag("drop-optimizer",
                         "write only the parameters: enough for evaluate and generate, and for train after checkpoint "
                         "import --format shiftron"));
  options.push_back(json_flag());
  return options;
}

}  // namespace

std::string step_argument(const CommandLine& line, size_t index) {
  const std::string& directory = line.texts("directory").at(index);
  require_step_directory(directory);
  return directory;
}

nlohmann::ordered_json shape_json(const Shape& shape) {
  Json list = Json::array();
  for (int dim = 0; dim < shape.dims(); ++dim) list.push_back(shape[dim]);
  return list;
}

std::vector<Command> checkpoint_commands() {
  const std::vector<CommandOption> step = {directories("a step"), json_flag()};
  const CommandOption digest =
      flag("digest", "read every tensor and print its hash, which is the same in every layout");
  return {
      {"checkpoint",
       "list",
       "lists a run's steps and whether they are valid",
       "RUN",
       {directories("a run, or its folder checkpoints"), json_flag()},
       false,
       list,
       "shiftron checkpoint list run"},
      {"checkpoint",
       "inspect",
       "shows a step's content: configuration, files, tensors",
       "STEP_DIR",
       {step[0], digest, step[1]},
       false,
       inspect_checkpoint,
       "shiftron checkpoint inspect run/checkpoints/step-00001000"},
      {"checkpoint", "verify", "checks every byte of a step, and that HDF5 reads what the manifest states", "STEP_DIR",
       step, false, verify_checkpoint, "shiftron checkpoint verify run/checkpoints/step-00001000"},
      checkpoint_diff_command(),
      {"checkpoint", "convert", "writes a step and its configuration for another layout",
       "STEP_DIR --layout tp=4,pp=2,dp=8 --output DIR [--precision bf16|fp32] [--drop-optimizer]",
       writing_options({required(
           text_option("layout", "tp=N,pp=N,dp=N",
                       "the new layout; other keys of [parallel] too, such as zero=1; axes not given are 1"))}),
       false, convert,
       "shiftron checkpoint convert run/checkpoints/step-00001000 --layout tp=4,dp=2 --output converted"},
      {"checkpoint", "consolidate", "writes a step as one file with whole tensors",
       "STEP_DIR --output DIR [--precision bf16|fp32] [--drop-optimizer]", writing_options({}), false, consolidate,
       "shiftron checkpoint consolidate run/checkpoints/step-00001000 --output whole"},
      {"checkpoint",
       "prune",
       "lists old steps of a run that can be removed; --yes removes them",
       "RUN [--keep K] [--keep-every N] [--yes]",
       {directories("a run"),
        integer_option("keep", "number of newest valid steps to keep (default: the run's checkpoint.keep)",
                       between(1, kLargestCount)),
        integer_option("keep-every", "keep multiples of this step; 0 = none (default: the run's checkpoint.keep_every)",
                       between(0, kLargestCount)),
        flag("yes", "remove the steps"), json_flag()},
       false,
       prune_run,
       "shiftron checkpoint prune run --keep 2"}};
}

}  // namespace shiftron::cli
