// `shiftron checkpoint list | inspect | verify | diff`.
#include <filesystem>
#include <iostream>

#include "checkpoint/digest.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "cli/command.h"
#include "cli/print_json.h"
#include "core/check.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

// The step that a command is given. Throws Error(bad_input) where it is none; of a run the newest step is named.
std::string step_argument(const CommandLine& line, size_t index = 0) {
  const std::string& directory = line.texts("directory").at(index);
  refuse_other_than_a_step(directory);
  return directory;
}

Json shape_of(const Shape& shape) {
  Json list = Json::array();
  for (int dim = 0; dim < shape.dims(); ++dim) list.push_back(shape[dim]);
  return list;
}

int list(const CommandLine& line) {
  const bool as_json = line.has("json");
  std::string directory = line.text("directory");
  if (!std::filesystem::is_directory(directory)) throw_bad_input(directory, " is no directory; check the path");
  if (std::filesystem::is_directory(directory + "/checkpoints")) directory += "/checkpoints";
  Json answer = Json::array();
  const std::vector<StepDirectory> steps = list_steps(directory);
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    Json row = {{"step", entry->step}, {"directory", entry->path}, {"valid", true}};
    try {
      const Manifest manifest = check_step(entry->path);
      row["bytes"] = manifest.bytes();
      row["files"] = manifest.files.size();
    } catch (const Error& error) {
      row["valid"] = false;
      row["fault"] = error.what();
    }
    if (!as_json) {
      std::cout << row["directory"].get<std::string>() << ": "
                << (row["valid"] ? row["bytes"].dump() + " bytes in " + row["files"].dump() + " files"
                                 : "not valid: " + row["fault"].get<std::string>())
                << "\n";
    }
    answer.push_back(std::move(row));
  }
  if (as_json) {
    print_json(answer);
  } else if (steps.empty()) {
    std::cout << directory << " holds no step\n";
  }
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

int inspect(const CommandLine& line) {
  const bool with_digests = line.has("digest");
  const std::string directory = step_argument(line);
  const Manifest manifest = check_step(directory);
  std::vector<TensorDigest> digests;
  if (with_digests) digests = digest_step(directory);
  std::vector<int64_t> boxes(manifest.tensors.size(), 0);
  for (const ManifestBox& box : manifest.boxes) ++boxes[static_cast<size_t>(box.tensor)];
  Json json = describe(directory, manifest);
  json["tensors"] = Json::array();
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    Json entry = {{"path", tensor.path()},
                  {"shape", shape_of(tensor.shape)},
                  {"dtype", name_of(tensor.dtype)},
                  {"boxes", boxes[i]}};
    if (with_digests) entry["xxh3_128"] = to_hex(digests[i].hash);
    json["tensors"].push_back(std::move(entry));
  }
  if (line.has("json")) {
    print_json(json);
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (value.is_array() || key == "configuration") continue;
    std::cout << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
  for (const Json& file : json["files"]) {
    std::cout << file["name"].get<std::string>() << ": " << file["bytes"] << " bytes\n";
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    std::cout << tensor.path() << " " << tensor.shape.text() << " " << name_of(tensor.dtype) << " in " << boxes[i]
              << (boxes[i] == 1 ? " box" : " boxes") << (with_digests ? " " + to_hex(digests[i].hash) : "") << "\n";
  }
  std::cout << "\n" << manifest.configuration;
  return 0;
}

int verify(const CommandLine& line) {
  const std::string directory = step_argument(line);
  const std::vector<std::string> faults = verify_step(directory);
  if (line.has("json")) {
    print_json({{"directory", directory}, {"valid", faults.empty()}, {"faults", faults}});
  } else {
    for (const std::string& fault : faults) std::cout << fault << "\n";
    if (faults.empty()) std::cout << directory << ": whole\n";
  }
  return static_cast<int>(faults.empty() ? ExitCode::done : ExitCode::no_checkpoint);
}

int diff(const CommandLine& line) {
  const StepDifference found = diff_steps(step_argument(line), step_argument(line, 1));
  Json json = {{"equal", found.equal()},
               {"steps", {found.step_a, found.step_b}},
               {"state_equal", found.state_equal},
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
                        {"relative_l2", tensor.relative_l2}});
    }
    json["unequal"].push_back(std::move(entry));
  }
  if (line.has("json")) {
    print_json(json);
  } else {
    if (found.step_a != found.step_b) std::cout << "steps " << found.step_a << " and " << found.step_b << "\n";
    if (!found.state_equal) std::cout << "the trainer's state differs\n";
    for (const TensorDifference& tensor : found.tensors) {
      if (tensor.equal()) continue;
      std::cout << tensor.path << ": ";
      if (!tensor.mismatch.empty()) {
        std::cout << tensor.mismatch << "\n";
      } else {
        std::cout << tensor.unequal << " of " << tensor.count << " elements differ, largest difference "
                  << tensor.max_absolute << ", relative L2 " << tensor.relative_l2 << "\n";
      }
    }
    std::cout << json["unequal"].size() << " of " << found.tensors.size() << " tensors differ\n";
  }
  return static_cast<int>(found.equal() ? ExitCode::done : ExitCode::unequal);
}

}  // namespace

std::vector<Command> checkpoint_commands() {
  const std::vector<CommandOption> step = {directories("a step"), json_flag()};
  const CommandOption digest = flag("digest", "read every tensor and print its hash, which no layout changes");
  return {{"checkpoint",
           "list",
           "says which steps a run has and whether they are valid",
           "RUN",
           {directories("a run, or its folder of checkpoints"), json_flag()},
           false,
           list},
          {"checkpoint", "inspect", "says what a step holds", "STEP_DIR", {step[0], digest, step[1]}, false, inspect},
          {"checkpoint", "verify", "checks every byte of a step, and that HDF5 sees what the manifest states",
           "STEP_DIR", step, false, verify},
          {"checkpoint",
           "diff",
           "compares two steps tensor by tensor, whatever their layouts",
           "STEP_DIR STEP_DIR",
           {directories("two steps, of any layouts", 2), json_flag()},
           false,
           diff}};
}

}  // namespace shiftron::cli
