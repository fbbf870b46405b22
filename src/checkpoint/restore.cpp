// Choosing a step with all ranks, reading it, falling back.
#include "checkpoint/restore.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/boxes.h"
#include "checkpoint/elements.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/helper_thread.h"

namespace shiftron {
namespace {

// A tensor of the model and the boxes of it that this rank needs: elements of a parameter, from `begin` on, one box
// behind the other.
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
// groups that are expected. A step of parameters alone need not hold moments, and may be of another type.
std::string model_mismatch(const Manifest& manifest, const std::vector<ManifestTensor>& expected, bool whole) {
  const bool bare = !has_moments(manifest.tensors);
  std::vector<std::string> faults;
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
      faults.push_back(tensor.path() + " is " + found->second->shape.text() + " in the checkpoint, " +
                       tensor.shape.text() + " in this model");
    } else if (found->second->dtype != tensor.dtype && !bare) {
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

// As it stands in the state; null where it does not.
nlohmann::json applied_updates(const std::string& state_json) {
  const nlohmann::json state = nlohmann::json::parse(state_json);
  return state.value("trainer", nlohmann::json::object()).value("applied_updates", nlohmann::json());
}

// Empty where training may go on from the step with the moments of `expected`, if there are any.
std::string moments_fault(const std::string& path, const Manifest& manifest,
                          const std::vector<ManifestTensor>& expected) {
  if (!has_moments(expected) || has_moments(manifest.tensors)) return "";
  if (may_begin_without_moments(manifest.state_json)) return "";
  const nlohmann::json applied = applied_updates(manifest.state_json);
  return path + " holds parameters alone, without the moments of the " +
         (applied.is_null() ? "" : applied.dump() + " ") +
         "updates behind them: training cannot go on from it, evaluate and generate can; resume from the step that it "
         "was made of, or begin a new run with its parameters: shiftron checkpoint import " +
         path + " --format shiftron --output RUN";
}

// What a run should know of how a step is read into masters of `type`.
void tell_casts(const std::string& path, const Manifest& manifest, const ParameterSet& set, bool with_moments,
                Log& log) {
  if (with_moments && set.training() && !has_moments(manifest.tensors)) {
    log.info(path + " holds parameters alone: moments start at zero");
  }
  const DType masters = set.types().accumulation;
  const auto other = std::ranges::find_if(manifest.tensors, [&](const ManifestTensor& tensor) {
    return tensor.group == TensorGroup::parameters && tensor.dtype != masters;
  });
  if (other == manifest.tensors.end()) return;
  log.warning(path + ": parameters of " + name_of(other->dtype) + " are read into " + name_of(masters) + " masters");
}

// Elements of a parameter from `first` on, of the step's type, cast where the model's is another. `write`: to it.
template <typename Write>
void write_cast(DType there, const Wanted& entry, int64_t first, int64_t count, const std::byte* values, Write write) {
  const DType here = entry.tensor.dtype;
  if (there == here) return write(first, count, values);
  constexpr int64_t kPiece = 1 << 13;  // elements; stay in the cache
  std::array<std::byte, kPiece * sizeof(double)> cast;
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t some = std::min(kPiece, count - at);
    cast_elements(there, values + at * size_of(there), here, cast.data(), some);
    write(first + at, some, cast.data());
  }
}

// What does not come block by block: by rows that together hold a few blocks. A helper reads the next rows while those
// before them are written.
class RowsReader {
 public:
  RowsReader(StepReader& reader, const ParameterSet& set, int threads)
      : reader_(reader), set_(set), helper_(threads > 1) {}

  void read(int tensor, const Wanted& entry, const Box& box, int64_t begin) {
    constexpr uint64_t kBlocks = 2;
    const DType there = reader_.tensors()[static_cast<size_t>(tensor)].dtype;
    const auto room = static_cast<int64_t>(kBlocks * reader_.manifest().block_bytes) / size_of(there);
    for_each_rows(box, room, [&](const Box& rows, int64_t first) {
      helper_.finish();
      std::swap(arrived_, coming_);
      coming_.entry = &entry;
      coming_.type = there;
      coming_.begin = begin + first;
      coming_.values.resize(static_cast<size_t>(rows.extent.count() * size_of(there)));
      helper_.start([this, tensor, rows] { reader_.read(tensor, rows, coming_.values.data()); });
      write_arrived();
    });
  }
  // Until all of it is written; nobody else uses the reader before.
  void finish() {
    helper_.finish();
    std::swap(arrived_, coming_);
    write_arrived();
  }

 private:
  struct Rows {
    const Wanted* entry = nullptr;  // null: none
    DType type = DType::float32;    // of the values
    int64_t begin = 0;
    std::vector<std::byte> values{};
  };
  void write_arrived() {
    if (arrived_.entry == nullptr) return;
    const Wanted& entry = *std::exchange(arrived_.entry, nullptr);
    const auto count = static_cast<int64_t>(arrived_.values.size()) / size_of(arrived_.type);
    write_cast(arrived_.type, entry, arrived_.begin, count, arrived_.values.data(),
               [&](int64_t first, int64_t some, const std::byte* values) {
                 set_.write(*entry.parameter, entry.state, first, some, values);
               });
  }

  StepReader& reader_;
  const ParameterSet& set_;
  Rows arrived_, coming_;
  HelperThread helper_;  // last: it ends before what it uses
};

void clear(const Wanted& entry, const ParameterSet& set) {
  constexpr int64_t kMost = 1 << 20;  // elements
  int64_t end = entry.begin;
  for (const Box& box : entry.boxes) end += box.extent.count();
  const std::vector<std::byte> zeros(
      static_cast<size_t>(std::min(kMost, end - entry.begin) * size_of(entry.tensor.dtype)));
  for (int64_t at = entry.begin; at < end; at += kMost) {
    set.write(*entry.parameter, entry.state, at, std::min(kMost, end - at), zeros.data());
  }
}

// Where a box of a parameter goes that begins with its element `begin`; nothing where only rows can be written.
std::optional<StepReader::Destination> destination_of(DType there, const Wanted& entry, int64_t begin,
                                                      const ParameterSet& set) {
  if (there == entry.tensor.dtype) {
    if (void* to = set.on_host(*entry.parameter, entry.state, begin)) return StepReader::Destination{.to = to};
  }
  if (!set.await_host(*entry.parameter)) return std::nullopt;
  return StepReader::Destination{.take = [=, &entry, &set](int64_t first, int64_t count, const std::byte* values) {
    write_cast(there, entry, begin + first, count, values, [&](int64_t at, int64_t some, const std::byte* cast) {
      set.write_on_host(*entry.parameter, entry.state, at, some, cast);
    });
  }};
}

// Files are read front to back, by blocks where they go to the host's memory; what does not is read box by box.
void read_into(StepReader& reader, const std::vector<Wanted>& wanted, const ParameterSet& set, int threads) {
  struct Read {
    StepReader::Part part;
    int tensor;
    const Wanted* entry;
    const Box* box;
    int64_t begin;
    std::optional<int64_t> place;                // of the part in the box, if it can come by blocks
    const StepReader::Destination* destination;  // null: by rows
  };
  std::vector<Read> reads;
  std::deque<StepReader::Destination> destinations;
  for (const Wanted& entry : wanted) {
    const int tensor = reader.find(entry.tensor.group, entry.tensor.name);
    if (tensor < 0) {  // moments of a step of parameters alone
      clear(entry, set);
      continue;
    }
    const DType there = reader.tensors()[static_cast<size_t>(tensor)].dtype;
    int64_t begin = entry.begin;
    for (const Box& box : entry.boxes) {
      std::vector<Read> of_box;
      for (const StepReader::Part& part : reader.parts_of(tensor, box)) {
        of_box.push_back({part, tensor, &entry, &box, begin, reader.place_of(part, box), nullptr});
      }
      const bool by_blocks = std::ranges::all_of(of_box, [](const Read& read) { return read.place.has_value(); });
      if (const auto found = destination_of(there, entry, begin, set); found && (found->to != nullptr || by_blocks)) {
        destinations.push_back(*found);
        for (Read& read : of_box) read.destination = &destinations.back();
      } else {
        of_box.resize(std::min<size_t>(1, of_box.size()));  // rows of the whole box
      }
      reads.insert(reads.end(), of_box.begin(), of_box.end());
      begin += box.extent.count();
    }
  }
  std::ranges::stable_sort(reads, {}, &Read::part);
  std::vector<StepReader::BlockRead> blocks;  // straight to their destinations, not yet read
  RowsReader rows(reader, set, threads);
  const auto finish = [&] {
    reader.read_blocks(blocks, threads);
    blocks.clear();
    rows.finish();
  };
  bool by_rows = false;  // the read before
  for (const auto& [part, tensor, entry, box, begin, place, destination] : reads) {
    if (by_rows != (destination == nullptr)) finish();
    by_rows = destination == nullptr;
    if (by_rows) {
      rows.read(tensor, *entry, *box, begin);
    } else if (place) {
      reader.append_blocks(part, *place, *destination, blocks);
    } else {
      finish();
      reader.read_part(part, *box, destination->to);
    }
  }
  finish();
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
    if (const std::string fault = moments_fault(entry.path, manifest, expected_); !fault.empty()) {
      return {Order::Kind::mismatch, "", fault};
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
                                                 ParameterSet& set, ControlPlane& world, Log& log, int threads) {
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
  std::string path;  // of the step that it reads
  while (true) {
    order = exchange(world, order);
    if (order.kind == Order::Kind::nothing) return std::nullopt;
    if (order.kind == Order::Kind::no_valid) throw Error(order.body, ExitCode::no_checkpoint);
    if (order.kind == Order::Kind::mismatch) throw_bad_input(order.body);
    if (order.kind == Order::Kind::done) {
      if (leads) tell_casts(path, reader->manifest(), set, true, log);
      return content_of(reader->manifest(), order.body);
    }
    path = order.path;
    std::string fault;
    std::string tokenizer;
    try {
      reader.emplace(order.path, parse_manifest(order.body, order.path + "/" + kManifestName));
      read_into(*reader, wanted, set, threads);
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

void load_parameters(const std::string& step_directory, ParameterSet& set, const LoadOptions& options) {
  const std::vector<Wanted> wanted = wanted_of(set, options.with_moments);
  const std::vector<ManifestTensor> expected = tensors_of(wanted);
  StepReader reader(step_directory, check_step(step_directory));
  reader.visit_reads(options.at_read);
  const std::string mismatch = model_mismatch(reader.manifest(), expected, set.layout().pp == 1);
  if (!mismatch.empty()) throw_bad_input(mismatch_message(step_directory, mismatch));
  if (const std::string fault = moments_fault(step_directory, reader.manifest(), expected); !fault.empty()) {
    throw_bad_input(fault);
  }
  if (options.log != nullptr) tell_casts(step_directory, reader.manifest(), set, options.with_moments, *options.log);
  read_into(reader, wanted, set, options.threads);
}

bool may_begin_without_moments(const std::string& state_json) {
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
