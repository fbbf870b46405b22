// `shiftron checkpoint diff`.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "cli/byte_progress.h"
#include "cli/checkpoint.h"
#include "cli/command.h"
#include "cli/print_json.h"
#include "core/foreign_text.h"
#include "evaluate/checkpoint_model.h"
#include "interchange/hugging_face_source.h"
#include "interchange/megatron_source.h"
#include "interchange/mixed_taps.h"
#include "run/run_files.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const FirstDifference& first) {
  Json json = {{"index", shape_json(first.index)}, {"a", json_number(first.a)}, {"b", json_number(first.b)}};
  if (first.ulp) json["ulp"] = *first.ulp;
  return json;
}

// "[3, 17]: 0.5 and 0.50000006, 1 ulp"
std::string text_of(const FirstDifference& first) {
  return fmt::format("{}: {:.17g} and {:.17g}{}", first.index.text(), first.a, first.b,
                     first.ulp ? fmt::format(", {} ulp", *first.ulp) : "");
}

// A missing value is null.
template <typename Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const StepDifference& found) {
  Json json = {{"equal", found.equal()},
               {"steps", {json_of(found.step_a), json_of(found.step_b)}},
               {"state_equal", json_of(found.state_equal)},
               {"tensors", found.tensors.size()},
               {"unequal", Json::array()}};
  for (const TensorDifference& tensor : found.tensors) {
    if (tensor.equal()) continue;
    Json entry = {{"path", tensor.path}};
    if (!tensor.mismatch.empty()) {
      entry["mismatch"] = tensor.mismatch;
    } else {
      entry.update(Json{{"unequal_elements", tensor.unequal},
                        {"elements", tensor.count},
                        {"max_absolute", tensor.max_absolute},
                        {"relative_l2", tensor.relative_l2},
                        {"first", json_of(*tensor.first)}});
    }
    json["unequal"].push_back(std::move(entry));
  }
  return json;
}

void print(const StepDifference& found) {
  if (!found.parameters_only) {
    if (found.step_a != found.step_b) std::cout << "steps " << *found.step_a << " and " << *found.step_b << "\n";
    if (found.state_equal == false) std::cout << "the trainer's state differs\n";
  }
  size_t unequal = 0;
  bool shown = false;
  for (const TensorDifference& tensor : found.tensors) {
    if (tensor.equal()) continue;
    ++unequal;
    std::cout << printable_line(tensor.path) << ": ";
    if (!tensor.mismatch.empty()) {
      std::cout << tensor.mismatch << "\n";
      continue;
    }
    std::cout << tensor.unequal << " of " << tensor.count << " elements differ, largest difference "
              << tensor.max_absolute << ", relative L2 " << tensor.relative_l2 << "\n";
    if (!shown) std::cout << "  the first at " << text_of(*tensor.first) << "\n";
    shown = true;
  }
  std::cout << unequal << " of " << found.tensors.size() << " tensors differ\n";
}

// Whether a directory of `diff` is one of Hugging Face's. Then only parameters are compared, with taps as they are
// mixed, and in the wider type, because an export's type may differ from the masters'.
bool is_hugging_face(const std::string& directory) {
  return import_format_of(directory) == "hf";
}

// `number`: set to the step's number if it is a step.
std::unique_ptr<TensorSource> source_argument(const CommandLine& line, size_t index, std::optional<int64_t>& number) {
  const std::string& directory = line.texts("directory").at(index);
  if (is_hugging_face(directory)) return std::make_unique<HuggingFaceSource>(directory);
  const std::string step = step_argument(line, index);
  auto reader = std::make_unique<StepReader>(step, check_step(step));
  number = reader->manifest().step;
  return std::make_unique<MixedTaps>(std::move(reader), open_checkpoint(step).config.model);
}

int diff(const CommandLine& line) {
  const std::vector<std::string>& directories_given = line.texts("directory");
  StepDifference found;
  {
    ByteProgress progress("comparing");
    DiffOptions options{
        .parameters_only = line.has("parameters"), .widen = line.has("widen"), .progress = progress.callback()};
    if (std::ranges::any_of(directories_given, is_hugging_face)) {
      options.parameters_only = options.widen = found.parameters_only = true;
      found.tensors =
          diff_sources(*source_argument(line, 0, found.step_a), *source_argument(line, 1, found.step_b), options);
    } else {
      found = diff_steps(step_argument(line), step_argument(line, 1), options);
    }
  }
  if (line.has("json")) {
    print_json(json_of(found));
  } else {
    print(found);
  }
  return static_cast<int>(found.equal() ? ExitCode::done : ExitCode::unequal);
}

}  // namespace

Command checkpoint_diff_command() {
  return {"checkpoint",
          "diff",
          "compares two steps tensor by tensor, in any layouts",
          "STEP_DIR STEP_DIR [--parameters] [--widen]",
          {directories("two steps, in any layouts, or a directory that transformers loads", 2),
           flag("parameters", "compare only parameters, without moments and the trainer's state"),
           flag("widen", "compare tensors of different types in the wider type"), json_flag()},
          false,
          diff,
          "shiftron checkpoint diff run/checkpoints/step-00001000 other-run/checkpoints/step-00001000"};
}

}  // namespace shiftron::cli
