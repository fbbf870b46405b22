// Choosing a step with all ranks, reading it, falling back.
#include "checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/parameter_reads.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

// Empty if the step at `path` holds the tensors of `expected` with their shapes and types and, with `whole`, no others
// of the expected groups. A step of parameters alone need not hold moments, and may have another type.
std::string model_mismatch(const std::string& path, const Manifest& manifest,
                           const std::vector<ManifestTensor>& expected, bool whole) {
  const bool bare = !has_moments(manifest.tensors);
  std::vector<std::string> faults;
  std::string types;
  std::map<std::string, const ManifestTensor*> present;
  for (const ManifestTensor& tensor : manifest.tensors) present[tensor.path()] = &tensor;
  std::set<std::string> names;
  std::set<TensorGroup> groups;
  for (const ManifestTensor& tensor : expected) {
    if (bare && tensor.group != TensorGroup::parameters) continue;
    names.insert(tensor.path());
    groups.insert(tensor.group);
    const auto found = present.find(tensor.path());
    if (found == present.end()) {
      faults.push_back(tensor.path() + " is missing in the checkpoint");
    } else if (!(found->second->shape == tensor.shape)) {
      faults.push_back(tensor.path() + " is " + found->second->shape.text() + " in the checkpoint, but " +
                       tensor.shape.text() + " in this model");
    } else if (found->second->dtype != tensor.dtype && !bare) {
      types = std::string(name_of(found->second->dtype)) + " in the checkpoint, but " + name_of(tensor.dtype) +
              " in this run: train.precision differs";
    }
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (whole && groups.count(tensor.group) > 0 && names.count(tensor.path()) == 0) {
      faults.push_back(tensor.path() + " is in the checkpoint, but not in this model");
    }
  }
  if (faults.empty() && types.empty()) return "";
  if (faults.empty()) {
    return path + ": tensors are " + types +
           "; keep train.precision, or import only the parameters: shiftron checkpoint import " + shell_word(path) +
           " --format shiftron --output RUN";
  }
  constexpr size_t kMostListed = 12;
  std::string text = path + " belongs to another model:";
  for (size_t i = 0; i < std::min(faults.size(), kMostListed); ++i) text += "\n  " + faults[i];
  if (faults.size() > kMostListed) text += "\n  and " + std::to_string(faults.size() - kMostListed) + " more";
  return text;
}

// As stored in the state; null if it is missing.
nlohmann::json applied_updates(const std::string& state_json) {
  const nlohmann::json state = nlohmann::json::parse(state_json);
  return state.value("trainer", nlohmann::json::object()).value("applied_updates", nlohmann::json());
}

// Empty if training can resume from the step with the moments of `expected`, if there are any.
std::string moments_fault(const std::string& path, const Manifest& manifest,
                          const std::vector<ManifestTensor>& expected) {
  if (!has_moments(expected) || has_moments(manifest.tensors)) return "";
  if (can_start_without_moments(manifest.state_json)) return "";
  const nlohmann::json applied = applied_updates(manifest.state_json);
  return path + " holds only parameters, without the optimizer moments of the " +
         (applied.is_null() ? "" : applied.dump() + " ") +
         "updates that led to them: training cannot resume from it, but evaluate and generate can use it; resume from "
         "the step that it was made from, or start a new run with its parameters: shiftron checkpoint import " +
         shell_word(path) + " --format shiftron --output RUN";
}

// Logs how the step differs from the masters that it is read into.
void log_casts(const std::string& path, const Manifest& manifest, const ParameterSet& set, bool with_moments,
               Log& log) {
  if (with_moments && set.training() && !has_moments(manifest.tensors)) {
    log.info(path + " holds only parameters: moments start at zero");
  }
  const DType masters = set.types().accumulation;
  const auto other = std::ranges::find_if(manifest.tensors, [&](const ManifestTensor& tensor) {
    return tensor.group == TensorGroup::parameters && tensor.dtype != masters;
  });
  if (other == manifest.tensors.end()) return;
  log.warning(path + ": parameters are converted from " + name_of(other->dtype) + " to " + name_of(masters) +
              " masters");
}

std::string read_tokenizer(const std::string& step_directory, const Manifest& manifest) {
  const ManifestFile* file = manifest.find_file(manifest.tokenizer_file);
  return file == nullptr ? "" : read_manifest_file(step_directory, *file);
}

CheckpointContent content_of(const Manifest& manifest, std::string tokenizer_bytes) {
  StoredTokenizer tokenizer;
  if (!tokenizer_bytes.empty()) {
    tokenizer = {{manifest.tokenizer_file, std::move(tokenizer_bytes)}, manifest.tokenizer_settings};
  }
  return {.step = manifest.step,
          .configuration = manifest.configuration,
          .state_json = manifest.state_json,
          .tokenizer = std::move(tokenizer),
          .data_fingerprint = manifest.data_fingerprint,
          .code_version = manifest.code_version};
}

// What rank 0 tells the others to do. It is sent as one text: kind and path, a line break, the body.
struct Order {
  enum class Kind : char { nothing = 'n', read = 'r', done = 'd', no_valid = 'v', mismatch = 'm', system = 's' };
  Kind kind = Kind::nothing;
  std::string path;  // of the step
  std::string body;  // read: the manifest; done: the tokenizer; errors: the message
};

Order exchange(ControlPlane& world, const Order& order) {
  const std::string text = world.broadcast_text(static_cast<char>(order.kind) + order.path + "\n" + order.body, 0);
  const size_t end = text.find('\n');
  return {static_cast<Order::Kind>(text.at(0)), text.substr(1, end - 1), text.substr(end + 1)};
}

// Rank 0's side: which step comes next, and what was wrong with the previous ones.
class Chooser {
 public:
  Chooser(const std::string& directory, std::optional<int64_t> which, std::vector<ManifestTensor> expected, Log& log,
          const RestoreOptions& options)
      : directory_(directory),
        which_(which),
        expected_(std::move(expected)),
        log_(log),
        options_(options),
        steps_(list_steps(directory)) {}

  Order next();
  Order reject(const std::string& fault);  // the step of the last order cannot be read
  // The machine failed, so the step may be valid.
  Order refused(const std::string& reason) const {
    return {Order::Kind::system, "", unreadable_step(steps_[at_].path, reason)};
  }

 private:
  const std::string directory_;
  const std::optional<int64_t> which_;
  const std::vector<ManifestTensor> expected_;
  Log& log_;
  const RestoreOptions& options_;
  const std::vector<StepDirectory> steps_;
  size_t at_ = 0;
  std::string faults_;
};

Order Chooser::reject(const std::string& fault) {
  const StepDirectory& entry = steps_[at_];
  log_.warning("step " + std::to_string(entry.step) + " cannot be used: " + fault);
  if (options_.rejected) options_.rejected(entry.step, fault);
  faults_ += "\n  step " + std::to_string(entry.step) + ": " + fault;
  ++at_;
  return next();
}

Order Chooser::next() {
  if (steps_.empty() && !which_) return {};
  while (which_ && at_ < steps_.size() && steps_[at_].step != *which_) ++at_;
  if (at_ == steps_.size()) {
    if (which_ && faults_.empty()) {
      std::string present;
      for (const StepDirectory& entry : steps_) present += (present.empty() ? "" : ", ") + std::to_string(entry.step);
      return {Order::Kind::mismatch, "",
              "step " + std::to_string(*which_) + " is not in " + directory_ +
                  "; available steps: " + (present.empty() ? "none" : present)};
    }
    if (which_) {
      return {Order::Kind::no_valid, "",
              "step " + std::to_string(*which_) + " of " + directory_ + " was requested, but is not valid:" + faults_};
    }
    return {Order::Kind::no_valid, "", "no valid checkpoint in " + directory_ + ":" + faults_};
  }
  const StepDirectory& entry = steps_[at_];
  try {
    const Manifest manifest = check_step(entry.path);
    const std::string mismatch = model_mismatch(entry.path, manifest, expected_, true);
    if (!mismatch.empty()) {
      return {Order::Kind::mismatch, "", mismatch};
    }
    if (const std::string fault = moments_fault(entry.path, manifest, expected_); !fault.empty()) {
      return {Order::Kind::mismatch, "", fault};
    }
    return {Order::Kind::read, entry.path, to_text(manifest)};
  } catch (const SystemError& error) {
    return refused(error.what());
  } catch (const Error& error) {
    return reject(error.what());
  }
}

// Faults of a step have the code no_checkpoint; all others, such as a GPU's faults or lack of memory, say nothing about
// its content.
bool is_machine_fault(const std::exception& error) {
  return as_error(error).code() != ExitCode::no_checkpoint;
}

// Whether this rank does not find the files of a step, with their sizes, that rank 0 has just found: its host sees an
// older state of the file system (a stale cache), or another folder. The step may be valid.
bool sees_other_files(const Order& order) {
  try {
    const Manifest manifest = parse_manifest(order.body, order.path + "/" + kManifestName);
    return !first_file_fault(order.path, manifest).empty();
  } catch (const Error&) {
    return true;
  }
}

// Joins the texts that are not empty.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() || text.empty() ? "" : "; ") + text;
  return all;
}

}  // namespace

std::optional<CheckpointContent> load_checkpoint(const std::string& directory, std::optional<int64_t> which,
                                                 ParameterSet& set, ControlPlane& world, Log& log,
                                                 const RestoreOptions& options) {
  const bool gathers = set.divided() && options.gather != nullptr;
  const std::vector<WantedTensor> wanted = wanted_of(set, {.moments = true, .kept = gathers});
  std::vector<ManifestTensor> expected = merge(gather_tensors(world, wanted)).tensors;
  const bool leads = world.rank() == 0;
  std::optional<Chooser> chooser;
  Order order;
  if (leads) {
    try {
      chooser.emplace(directory, which, std::move(expected), log, options);
      order = chooser->next();
    } catch (const std::exception& error) {  // from the folder of steps, which rank 0 alone lists
      const Error failure = as_error(error);
      if (failure.code() != ExitCode::crash) throw;
      order = {Order::Kind::system, "", failure.what()};
    }
  }
  std::optional<StepReader> reader;
  std::string path;  // of the step that is read
  while (true) {
    order = exchange(world, order);
    if (order.kind == Order::Kind::nothing) return std::nullopt;
    if (order.kind == Order::Kind::no_valid) throw Error(order.body, ExitCode::no_checkpoint);
    if (order.kind == Order::Kind::mismatch) throw_bad_input(order.body);
    if (order.kind == Order::Kind::system) throw SystemError(order.body);
    if (order.kind == Order::Kind::done) {
      if (gathers) options.gather();
      if (leads) log_casts(path, reader->manifest(), set, true, log);
      return content_of(reader->manifest(), order.body);
    }
    path = order.path;
    std::string fault;
    bool refused = false;  // the machine failed, not the step
    std::string tokenizer;
    try {
      reader.emplace(order.path, parse_manifest(order.body, order.path + "/" + kManifestName));
      reader->visit_reads(options.at_read);
      read_into(*reader, wanted, set, options.threads);
      if (leads) tokenizer = read_tokenizer(order.path, reader->manifest());
    } catch (const std::exception& error) {
      const bool sees_less = !leads && sees_other_files(order);
      refused = is_machine_fault(error) || sees_less;
      fault = place_of(world.rank()) + ": " + as_error(error).what() +
              (sees_less ? " (rank 0 sees all files of the step: check the file system of this host)" : "");
    }
    const std::string faults = joined(world.gather_text(refused ? "" : fault, 0));
    const std::string refusals = joined(world.gather_text(refused ? fault : "", 0));
    if (!leads) continue;
    if (!refusals.empty()) {
      order = chooser->refused(refusals);
    } else {
      order = faults.empty() ? Order{Order::Kind::done, "", tokenizer} : chooser->reject(faults);
    }
  }
}

void load_parameters(const std::string& step_directory, ParameterSet& set, const LoadOptions& options) {
  const std::vector<WantedTensor> wanted = wanted_of(set, {.moments = options.with_moments});
  const std::vector<ManifestTensor> expected = tensors_of(wanted);
  StepReader reader(step_directory, check_step(step_directory));
  reader.visit_reads(options.at_read);
  const std::string mismatch = model_mismatch(step_directory, reader.manifest(), expected, set.layout().pp == 1);
  if (!mismatch.empty()) throw_bad_input(mismatch);
  if (const std::string fault = moments_fault(step_directory, reader.manifest(), expected); !fault.empty()) {
    throw_bad_input(fault);
  }
  if (options.log != nullptr) log_casts(step_directory, reader.manifest(), set, options.with_moments, *options.log);
  read_into(reader, wanted, set, options.threads);
}

bool can_start_without_moments(const std::string& state_json) {
  const nlohmann::json applied = applied_updates(state_json);
  return applied.is_number() && applied == 0;
}

CheckpointContent read_content(const std::string& step_directory) {
  return read_content(step_directory, read_manifest(step_directory));
}

CheckpointContent read_content(const std::string& step_directory, const Manifest& manifest) {
  return content_of(manifest, read_tokenizer(step_directory, manifest));
}

}  // namespace shiftron
