// `shiftron checkpoint list | inspect | verify | diff`.
#include <boost/program_options.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "cli/command.h"
#include "cli/command_options.h"
#include "core/check.h"

namespace shiftron::cli {
namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

void print(const Json& json) {
  std::cout << json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

struct Request {
  bool help = false;  // was printed
  bool json = false;
  std::vector<std::string> directories;
};

// The `count` directories that a command is given, and whether --json was.
Request read_request(const std::vector<std::string>& arguments, const std::string& usage, const std::string& meaning,
                     po::options_description& options, size_t count = 1) {
  Request request;
  options.add_options()("directory", po::value(&request.directories)->required()->multitoken()->value_name("DIR"),
                        (meaning + "; the name may stand alone").c_str());
  po::variables_map values;
  request.help = !parse_options(arguments, usage, options, values, "directory", static_cast<int>(count));
  if (request.help) return request;
  request.json = values["json"].as<bool>();
  if (request.directories.size() != count) {
    throw_bad_input(request.directories.size(), " directories given, must be ", count, " (usage: shiftron ", usage,
                    ")");
  }
  for (const std::string& directory : request.directories) {
    if (!std::filesystem::is_directory(directory)) throw_bad_input(directory, " is no directory; check the path");
  }
  return request;
}

Json shape_of(const Shape& shape) {
  Json list = Json::array();
  for (int dim = 0; dim < shape.dims(); ++dim) list.push_back(shape[dim]);
  return list;
}

int list(const std::vector<std::string>& arguments) {
  po::options_description options("options");
  const Request request =
      read_request(arguments, "checkpoint list RUN", "a run, or its folder of checkpoints", options);
  if (request.help) return 0;
  std::string directory = request.directories[0];
  if (std::filesystem::is_directory(directory + "/checkpoints")) directory += "/checkpoints";
  Json answer = Json::array();
  const std::vector<StepDirectory> steps = list_steps(directory);
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    Json line = {{"step", entry->step}, {"directory", entry->path}, {"valid", true}};
    try {
      const Manifest manifest = check_step(entry->path);
      line["bytes"] = manifest.bytes();
      line["files"] = manifest.files.size();
    } catch (const Error& error) {
      line["valid"] = false;
      line["fault"] = error.what();
    }
    if (!request.json) {
      std::cout << line["directory"].get<std::string>() << ": "
                << (line["valid"] ? line["bytes"].dump() + " bytes in " + line["files"].dump() + " files"
                                  : "not valid: " + line["fault"].get<std::string>())
                << "\n";
    }
    answer.push_back(std::move(line));
  }
  if (request.json) {
    print(answer);
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

int inspect(const std::vector<std::string>& arguments) {
  bool with_digests = false;
  po::options_description options("options");
  options.add_options()("digest", po::bool_switch(&with_digests),
                        "read every tensor and print its hash, which no layout changes");
  const Request request = read_request(arguments, "checkpoint inspect STEP_DIR", "a step", options);
  if (request.help) return 0;
  const std::string& directory = request.directories[0];
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
  if (request.json) {
    print(json);
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

int verify(const std::vector<std::string>& arguments) {
  po::options_description options("options");
  const Request request = read_request(arguments, "checkpoint verify STEP_DIR", "a step", options);
  if (request.help) return 0;
  const std::string& directory = request.directories[0];
  const std::vector<std::string> faults = verify_step(directory);
  if (request.json) {
    print({{"directory", directory}, {"valid", faults.empty()}, {"faults", faults}});
  } else {
    for (const std::string& fault : faults) std::cout << fault << "\n";
    if (faults.empty()) std::cout << directory << ": whole\n";
  }
  return static_cast<int>(faults.empty() ? ExitCode::done : ExitCode::no_checkpoint);
}

int diff(const std::vector<std::string>& arguments) {
  po::options_description options("options");
  const Request request =
      read_request(arguments, "checkpoint diff STEP_DIR STEP_DIR", "two steps, of any layouts", options, 2);
  if (request.help) return 0;
  const StepDifference found = diff_steps(request.directories[0], request.directories[1]);
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
  if (request.json) {
    print(json);
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
  return {{"checkpoint", "list", "says which steps a run has and whether they are valid", list},
          {"checkpoint", "inspect", "says what a step holds", inspect},
          {"checkpoint", "verify", "checks every byte of a step, and that HDF5 sees what the manifest states", verify},
          {"checkpoint", "diff", "compares two steps tensor by tensor, whatever their layouts", diff}};
}

}  // namespace shiftron::cli
