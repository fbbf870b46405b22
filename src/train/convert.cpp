// Plans the files of every rank on meta, then writes them and their configuration.
#include "train/convert.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "checkpoint/reader.h"
#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "checkpoint/steps.h"
#include "config/config_text.h"
#include "config/faults.h"
#include "config/option_value.h"
#include "config/validate.h"
#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "run/new_run.h"
#include "run/resume.h"
#include "run/run_files.h"
#include "run/saved_state.h"
#include "train/engine.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOrigin = "--layout";

// The files with the types and groups that are written. Throws Error(bad_input) if the step holds a tensor that the
// model of its configuration does not have.
std::vector<StepFile> files_to_write(const std::vector<ManifestTensor>& tensors, std::vector<StepFile> files,
                                     const ConvertOptions& options, const std::string& step_directory) {
  std::map<std::string, DType> types;  // of the tensors that are written
  for (const ManifestTensor& tensor : tensors) {
    const bool is_parameter = tensor.group == TensorGroup::parameters;
    if (!is_parameter && options.drop_optimizer) continue;
    types[tensor.path()] = is_parameter ? options.precision.value_or(tensor.dtype) : tensor.dtype;
  }
  std::set<std::string> planned;
  for (StepFile& file : files) {
    std::erase_if(file.boxes, [&](const BoxOfTensor& box) {
      return box.tensor.group != TensorGroup::parameters && !types.contains(box.tensor.path());
    });
    for (BoxOfTensor& box : file.boxes) {
      planned.insert(box.tensor.path());
      if (const auto type = types.find(box.tensor.path()); type != types.end()) box.tensor.dtype = type->second;
    }
  }
  for (const auto& [path, type] : types) {
    if (!planned.contains(path)) {
      throw_bad_input(step_directory, " contains ", path,
                      ", which is not a parameter of the model in its configuration");
    }
  }
  std::erase_if(files, [](const StepFile& file) { return file.boxes.empty(); });
  return files;
}

// False for a model that was never trained here: its configuration need not say how to train.
bool trains(const RunConfig& config) {
  return config.train.steps > 0 && config.train.global_batch > 0;
}

// Identifies a conversion: the same for the same unchanged step, layout and options.
std::string request_of(const std::string& step_directory, const std::string& layout, const ConvertOptions& options) {
  return to_hex(xxh3_128(detail::concatenate("convert", '\0', state_of_files(step_directory), '\0', layout, '\0',
                                             options.precision ? name_of(*options.precision) : "", '\0',
                                             options.drop_optimizer)));
}

}  // namespace

ParsedLayout parse_layout(const std::string& text) {
  ParsedLayout words;
  std::vector<std::pair<std::string, std::string>> values;
  std::istringstream input(text);
  for (std::string part; std::getline(input, part, ',');) {
    const size_t equals = part.find('=');
    if (equals != std::string::npos) {
      values.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    } else if (!values.empty()) {
      values.back().second += "," + part;
    } else {
      throw_bad_input("--layout '", text, "': '", part, "' is not KEY=VALUE; write for example tp=4,pp=2,dp=8");
    }
  }
  std::set<std::string> seen;
  for (const auto& [key, value] : values) {
    if (!seen.insert(key).second) throw_bad_input("--layout '", text, "': ", key, " is given twice");
    if (key == "dp") {
      words.dp = value;
    } else {
      words.settings.push_back({.key = "parallel." + key, .text = value, .origin = {.file = kOrigin}});
    }
  }
  return words;
}

RunConfig config_with_layout(const RunConfig& saved, const ParsedLayout& words, int& ranks) {
  RunConfig config = saved;
  config.parallel = ParallelSection{};
  config.parallel.bucket_elements = saved.parallel.bucket_elements;
  if (saved.parallel.recompute.kinds.size() == 1) config.parallel.recompute = saved.parallel.recompute;
  std::erase_if(config.origins, [](const auto& origin) { return origin.first.starts_with("parallel."); });
  apply_level(config, words.settings);
  int64_t dp = 0;
  const std::string unreadable = read_value(words.dp, dp);
  const int64_t smallest = std::max(1, minimum_ranks(config.parallel));
  if (!unreadable.empty() || dp < 1 || dp > kMostRanks) {
    config.reading_faults.push_back("dp '" + words.dp + "' must be a whole number from 1 to " +
                                    std::to_string(kMostRanks) + " (" + kOrigin + ")");
    dp = 1;
  } else if (smallest > kMostRanks / dp) {
    config.reading_faults.push_back("the layout has more than " + std::to_string(kMostRanks) + " ranks (" + kOrigin +
                                    ")");
    dp = 1;
  }
  ranks = static_cast<int>(std::min<int64_t>(smallest * dp, std::numeric_limits<int>::max()));
  refuse_faults(find_faults(config, ranks, trains(config) ? Use::dry_run : Use::evaluate), "the layout");
  return config;
}

std::vector<StepFile> files_of_layout(const RunConfig& given, const ParallelLayout& layout) {
  RunConfig config = given;
  if (!trains(config)) {  // no file depends on it
    config.train.global_batch = config.train.micro_batch * layout.dp * layout.pp * config.parallel.chunks;
  }
  std::vector<StepFile> files;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    Ledger ledger;
    Stream stream{.device = DeviceKind::meta, .ledger = &ledger};
    const auto world = make_meta_world(rank, layout.ranks());
    const Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), stream, {},
                        true);
    std::vector<BoxOfTensor> boxes = boxes_to_write(engine.parameters());
    if (!boxes.empty()) files.push_back({rank_file_name(rank), std::move(boxes)});
  }
  return files;
}

ConvertedStep convert_step(const std::string& step_directory, const std::string& layout_text, const std::string& output,
                           Log& log, const ConvertOptions& options) {
  StepReader reader(step_directory, check_step(step_directory));
  CheckpointContent content = read_content(step_directory, reader.manifest());
  int ranks = 0;
  RunConfig saved = saved_config(content.state_json, step_directory);
  saved.output.directory = output;
  saved.checkpoint.resume = {};
  const RunConfig config = config_with_layout(saved, parse_layout(layout_text), ranks);
  const ParallelLayout layout = make_layout(config.parallel, ranks);
  const bool keeps_moments = has_moments(reader.tensors()) && !options.drop_optimizer;
  const bool casts = options.precision && std::ranges::any_of(reader.tensors(), [&](const ManifestTensor& tensor) {
                       return tensor.group == TensorGroup::parameters && tensor.dtype != *options.precision;
                     });
  if (casts && keeps_moments) {
    throw_bad_input(
        "--precision casts the parameters, so training could not resume bit for bit; add --drop-optimizer, or omit "
        "--precision");
  }
  nlohmann::json state = nlohmann::json::parse(content.state_json);
  state["configuration"] = nlohmann::json::parse(to_json(config));
  content.state_json = state.dump();
  content.configuration = to_config_text(config);

  StepToWrite step{.content = content, .writer = layout, .files = {}};
  step.files = files_to_write(reader.tensors(), files_of_layout(config, layout), options, step_directory);
  ConvertedStep made{.directory = {},
                     .config_file = {},
                     .layout = layout,
                     .files = step.files.size(),
                     .can_train = keeps_moments || can_start_without_moments(content.state_json),
                     .has_training_keys = trains(config)};
  NewRun place(output, request_of(step_directory, layout_text, options), log);
  made.config_file = place.config_file();
  if (!place.existing_step().empty()) {
    made.was_there = true;
    made.directory = place.existing_step();
    made.bytes = bytes_of_step(made.directory);
    if (options.notify) options.notify(made);
    place.done();
    return made;
  }
  place.begin();
  place.require_config(content.configuration);
  StepWriteOptions write = options.write;
  write.before_commit = [&] {
    place.write_config(content.configuration);
    if (options.write.before_commit) options.write.before_commit();
  };
  const WrittenStep written = write_step(reader, step, place.checkpoints(), write);
  made.directory = written.directory;
  made.bytes = written.bytes;
  if (options.notify) options.notify(made);
  place.done();
  return made;
}

}  // namespace shiftron
