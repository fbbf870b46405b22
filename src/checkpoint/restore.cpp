// Choosing a step with all ranks, reading it, falling back.
#include "checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/boxes.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "core/check.h"

namespace shiftron {
namespace {

// A tensor of the model and the boxes of it that this rank needs: elements of a parameter, from `begin` on, one box behind
// the other.
struct Wanted {
  ManifestTensor tensor;
  std::vector<Box> boxes;
  int64_t begin;
  const Parameter* parameter;
  ParameterState state;
};

std::vector<Wanted> wanted_of(const ParameterSet& set, bool with_moments) {
  std::vector<Wanted> wanted;
  for (const auto& parameter : set.parameters()) {
    const auto add = [&](TensorGroup group, ParameterState state, Range range) {
      wanted.push_back({{group, parameter->spec.name, parameter->spec.shape, set.types().accumulation},
                        boxes_of_range(parameter->box, range),
                        range.begin,
                        parameter.get(),
                        state});
    };
    add(TensorGroup::parameters, ParameterState::master, {0, parameter->box.extent.count()});
    if (!with_moments || !set.training()) continue;
    add(TensorGroup::first_moment, ParameterState::first_moment, parameter->kept);
    add(TensorGroup::second_moment, ParameterState::second_moment, parameter->kept);
  }
  return wanted;
}

std::vector<ManifestTensor> tensors_of(const std::vector<Wanted>& wanted) {
  std::vector<ManifestTensor> tensors;
  for (const Wanted& entry : wanted) tensors.push_back(entry.tensor);
  return tensors;
}

// Empty where the step holds the tensors of `expected` with their shapes and types; `whole`: and no others of the
// groups that are expected.
std::string model_mismatch(const Manifest& manifest, const std::vector<ManifestTensor>& expected, bool whole) {
  std::vector<std::string> faults;
  std::map<std::string, const ManifestTensor*> present;
  for (const ManifestTensor& tensor : manifest.tensors) present[tensor.path()] = &tensor;
  std::set<std::string> names;
  std::set<TensorGroup> groups;
  for (const ManifestTensor& tensor : expected) {
    names.insert(tensor.path());
    groups.insert(tensor.group);
    const auto found = present.find(tensor.path());
    if (found == present.end()) {
      faults.push_back(tensor.path() + " is missing in the checkpoint");
    } else if (!(found->second->shape == tensor.shape)) {
      faults.push_back(tensor.path() + " is " + found->second->shape.text() + " in the checkpoint, " +
                       tensor.shape.text() + " in this model");
    } else if (found->second->dtype != tensor.dtype) {
      faults.push_back(tensor.path() + " is " + name_of(found->second->dtype) + " in the checkpoint, " +
                       name_of(tensor.dtype) + " in this run: train.precision differs");
    }
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (whole && groups.count(tensor.group) > 0 && names.count(tensor.path()) == 0) {
      faults.push_back(tensor.path() + " is in the checkpoint, not in this model");
    }
  }
  constexpr size_t kMostListed = 12;
  std::string text;
  for (size_t i = 0; i < std::min(faults.size(), kMostListed); ++i) text += "\n  " + faults[i];
  if (faults.size() > kMostListed) text += "\n  and " + std::to_string(faults.size() - kMostListed) + " more";
  return text;
}

std::string mismatch_message(const std::string& path, const std::string& mismatch) {
  return path + " belongs to another model:" + mismatch;
}

// Where the host cannot read a box into place: by rows that together hold a few blocks, since rows that cross boxes of
// other ranks read parts of many blocks.
void read_by_rows(StepReader& reader, int tensor, const Wanted& entry, const Box& box, int64_t begin,
                  const ParameterSet& set) {
  constexpr uint64_t kBlocks = 4;
  Box rows = box;
  const int64_t row = box.extent.count() / box.extent[0];
  const int64_t size = size_of(entry.tensor.dtype);
  const auto room = static_cast<int64_t>(kBlocks * reader.manifest().block_bytes) / size;
  const int64_t most = std::max<int64_t>(1, room / row);
  std::vector<std::byte> values;
  for (int64_t at = 0; at < box.extent[0]; at += most) {
    rows.offset[0] = box.offset[0] + at;
    rows.extent[0] = std::min(most, box.extent[0] - at);
    values.resize(static_cast<size_t>(rows.extent.count() * size));
    reader.read(tensor, rows, values.data());
    set.write(*entry.parameter, entry.state, begin + at * row, rows.extent.count(), values.data());
  }
}

void read_into(StepReader& reader, const std::vector<Wanted>& wanted, const ParameterSet& set) {
  for (const Wanted& entry : wanted) {
    const int tensor = reader.find(entry.tensor.group, entry.tensor.name);
    int64_t begin = entry.begin;
    for (const Box& box : entry.boxes) {
      if (void* place = set.on_host(*entry.parameter, entry.state, begin))
        reader.read(tensor, box, place);
      else
        read_by_rows(reader, tensor, entry, box, begin, set);
      begin += box.extent.count();
    }
  }
}

std::string read_tokenizer(const std::string& step_directory, const Manifest& manifest) {
  const ManifestFile* file = manifest.find_file(kTokenizerName);
  return file == nullptr ? "" : read_manifest_file(step_directory, *file);
}

CheckpointContent content_of(const Manifest& manifest, std::string tokenizer_model) {
  return {.step = manifest.step,
          .configuration = manifest.configuration,
          .state_json = manifest.state_json,
          .tokenizer_model = std::move(tokenizer_model),
          .data_fingerprint = manifest.data_fingerprint,
          .code_version = manifest.code_version};
}

// What rank 0 tells the others to do; travels as one text: kind, then the fields, each on a line, then the body.
struct Order {
  enum class Kind : char { nothing = 'n', read = 'r', done = 'd', no_valid = 'v', mismatch = 'm' };
  Kind kind = Kind::nothing;
  std::string path;  // of the step
  std::string body;  // read: the manifest; done: the tokenizer; errors: the message
};

Order exchange(ControlPlane& world, const Order& order) {
  const std::string text = world.broadcast_text(static_cast<char>(order.kind) + order.path + "\n" + order.body, 0);
  const size_t end = text.find('\n');
  return {static_cast<Order::Kind>(text.at(0)), text.substr(1, end - 1), text.substr(end + 1)};
}

// Rank 0's side: which step comes next, and what was wrong with those before.
class Chooser {
 public:
  Chooser(const std::string& directory, std::optional<int64_t> which, std::vector<ManifestTensor> expected, Log& log)
      : directory_(directory),
        which_(which),
        expected_(std::move(expected)),
        log_(log),
        steps_(list_steps(directory)) {}

  Order next();
  Order reject(const std::string& fault);  // the step of the last order cannot be read

 private:
  const std::string directory_;
  const std::optional<int64_t> which_;
  const std::vector<ManifestTensor> expected_;
  Log& log_;
  const std::vector<StepDirectory> steps_;
  size_t at_ = 0;
  std::string faults_;
};

Order Chooser::reject(const std::string& fault) {
  const StepDirectory& entry = steps_[at_];
  log_.warning("step " + std::to_string(entry.step) + " cannot be used: " + fault);
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
              "step " + std::to_string(*which_) + " is not in " + directory_ + "; there " +
                  (present.empty() ? "is none" : "are " + present)};
    }
    if (which_) {
      return {Order::Kind::no_valid, "",
              "step " + std::to_string(*which_) + " of " + directory_ + " was asked for and is not valid:" + faults_};
    }
    return {Order::Kind::no_valid, "", "no valid checkpoint in " + directory_ + ":" + faults_};
  }
  const StepDirectory& entry = steps_[at_];
  try {
    const Manifest manifest = check_step(entry.path);
    const std::string mismatch = model_mismatch(manifest, expected_, true);
    if (!mismatch.empty()) {
      return {Order::Kind::mismatch, "", mismatch_message(entry.path, mismatch)};
    }
    return {Order::Kind::read, entry.path, to_text(manifest)};
  } catch (const Error& error) {
    return reject(error.what());
  }
}

// The tensors of all ranks, on rank 0.
std::vector<ManifestTensor> gather_tensors(ControlPlane& world, const std::vector<Wanted>& wanted) {
  Manifest mine;
  mine.tensors = tensors_of(wanted);
  const std::vector<std::string> texts = world.gather_text(to_text(mine), 0);
  std::vector<Manifest> parts;
  for (const std::string& text : texts) parts.push_back(parse_manifest(text, "tensors of a rank"));
  return parts.empty() ? std::vector<ManifestTensor>() : merge(parts).tensors;
}

}  // namespace

std::optional<CheckpointContent> load_checkpoint(const std::string& directory, std::optional<int64_t> which,
                                                 ParameterSet& set, ControlPlane& world, Log& log) {
  const std::vector<Wanted> wanted = wanted_of(set, true);
  std::vector<ManifestTensor> expected = gather_tensors(world, wanted);
  const bool leads = world.rank() == 0;
  std::optional<Chooser> chooser;
  Order order;
  if (leads) {
    chooser.emplace(directory, which, std::move(expected), log);
    order = chooser->next();
  }
  std::optional<StepReader> reader;
  while (true) {
    order = exchange(world, order);
    if (order.kind == Order::Kind::nothing) return std::nullopt;
    if (order.kind == Order::Kind::no_valid) throw Error(order.body, ExitCode::no_checkpoint);
    if (order.kind == Order::Kind::mismatch) throw_bad_input(order.body);
    if (order.kind == Order::Kind::done) return content_of(reader->manifest(), order.body);
    std::string fault;
    std::string tokenizer;
    try {
      reader.emplace(order.path, parse_manifest(order.body, order.path + "/" + kManifestName));
      read_into(*reader, wanted, set);
      if (leads) tokenizer = read_tokenizer(order.path, reader->manifest());
    } catch (const std::exception& error) {
      fault = "rank " + std::to_string(world.rank()) + ": " + error.what();
    }
    const std::vector<std::string> faults = world.gather_text(fault, 0);
    if (!leads) continue;
    std::string all;
    for (const std::string& other : faults) all += (all.empty() || other.empty() ? "" : "; ") + other;
    order = all.empty() ? Order{Order::Kind::done, "", tokenizer} : chooser->reject(all);
  }
}

void load_parameters(const std::string& step_directory, ParameterSet& set, bool with_moments) {
  const std::vector<Wanted> wanted = wanted_of(set, with_moments);
  StepReader reader(step_directory, check_step(step_directory));
  const std::string mismatch = model_mismatch(reader.manifest(), tensors_of(wanted), set.layout().pp == 1);
  if (!mismatch.empty()) throw_bad_input(mismatch_message(step_directory, mismatch));
  read_into(reader, wanted, set);
}

CheckpointContent read_content(const std::string& step_directory) {
  const Manifest manifest = read_manifest(step_directory);
  return content_of(manifest, read_tokenizer(step_directory, manifest));
}

}  // namespace shiftron
