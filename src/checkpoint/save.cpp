// The commit protocol: prepare, write and read back, gather, manifest, renames.
#include "checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>

#include "checkpoint/boxes.h"
#include "checkpoint/parameter_reads.h"
#include "core/check.h"
#include "core/file.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// A box that this rank writes.
struct Piece {
  BoxOfTensor stored;
  const ParameterSet* set;
  const Parameter* parameter;  // that the box belongs to
  ParameterState state;
  int64_t begin;  // index of its first element in the parameter

  // Rows of dim 0 of the box: in place, or copied to `room`.
  const void* rows(int64_t first, int64_t count, std::vector<std::byte>& room) const {
    const int64_t row = stored.box.extent.count() / stored.box.extent[0];
    return set->read(*parameter, state, begin + first * row, count * row, room);
  }
};

// Elements `range` of every state of a parameter.
std::vector<Piece> pieces_of(const ParameterSet& set, const Parameter& parameter, Range range) {
  std::vector<Piece> pieces;
  const std::vector<Box> boxes = boxes_of_range(parameter.box, range);
  const auto add = [&](TensorGroup group, ParameterState state) {
    int64_t begin = range.begin;
    for (const Box& box : boxes) {
      pieces.push_back({{{group, parameter.spec.name, parameter.spec.shape, set.types().accumulation}, box},
                        &set,
                        &parameter,
                        state,
                        begin});
      begin += box.extent.count();
    }
  };
  add(TensorGroup::parameters, ParameterState::master);
  if (set.training()) {
    add(TensorGroup::first_moment, ParameterState::first_moment);
    add(TensorGroup::second_moment, ParameterState::second_moment);
  }
  return pieces;
}

// Of the equal copies of a box, those of the owning tp rank and stage write. If data-parallel copies are divided, each
// writes its part; otherwise each parameter goes to the copy with the fewest elements so far.
std::vector<Piece> pieces_to_write(const ParameterSet& set) {
  const ParallelLayout& layout = set.layout();
  Coordinates at = set.at();
  const int mine = at.cp + layout.cp * at.dp;
  at.cp = 0;
  std::vector<int64_t> load(static_cast<size_t>(layout.cp) * static_cast<size_t>(layout.dp), 0);
  std::vector<Piece> pieces;
  for (const auto& parameter : set.parameters()) {
    const int64_t count = parameter->box.extent.count();
    if (!is_owner(parameter->spec, layout, at) || count == 0) continue;
    Range range = {0, count};
    if (set.divided()) {
      range = set.at().cp == 0 ? parameter->part : Range{};
    } else {
      const auto least = std::min_element(load.begin(), load.end());
      *least += count;
      if (least - load.begin() != mine) continue;
    }
    for (Piece& piece : pieces_of(set, *parameter, range)) pieces.push_back(std::move(piece));
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.stored.tensor.group < b.stored.tensor.group; });
  return pieces;
}

StepFile file_of(int rank, const std::vector<Piece>& pieces) {
  StepFile file{.name = rank_file_name(rank), .boxes = {}};
  for (const Piece& piece : pieces) file.boxes.push_back(piece.stored);
  return file;
}

class Save {
 public:
  Save(const std::string& directory, const CheckpointContent& content, const ParameterSet& set, ControlPlane& world,
       const Retention& keep, Log& log, const SaveOptions& options)
      : directory_(directory),
        final_(directory + "/" + step_name(content.step)),
        temporary_(final_ + ".tmp"),
        content_(content),
        set_(set),
        world_(world),
        keep_(keep),
        log_(log),
        options_(options),
        pieces_(pieces_to_write(set)),
        file_(file_of(world.rank(), pieces_)) {}

  SaveResult run();

 private:
  void at(const char* point) const {
    if (options_.at_point) options_.at_point(point);
  }
  // Runs `work` and returns what went wrong, "" = nothing.
  template <typename Work>
  std::string attempt(Work work) const;
  void prepare(uint64_t bytes);
  void make_room(uint64_t bytes);
  Manifest write();
  void commit(const std::vector<std::string>& reports, std::vector<Manifest> tensors);

  const std::string directory_, final_, temporary_;
  const CheckpointContent& content_;
  const ParameterSet& set_;
  ControlPlane& world_;
  const Retention& keep_;
  Log& log_;
  const SaveOptions& options_;
  const std::vector<Piece> pieces_;
  const StepFile file_;
  uint64_t bytes_ = 0;
};

template <typename Work>
std::string Save::attempt(Work work) const {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return place_of(world_.rank()) + ": " + error.what();
  }
}

// Rank 0. If the disk has no room, older steps are removed before the save instead of after it, the oldest first. The
// newest stays; nothing is removed if that would not be enough.
void Save::make_room(uint64_t bytes) {
  const auto fits = [&] { return free_disk_space(directory_) >= bytes; };
  if (fits()) return;
  Retention newest = keep_;
  newest.keep = 1;
  std::vector<StepDirectory> older = superfluous_steps(directory_, newest, -1);
  std::erase_if(older, [](const StepDirectory& entry) { return fs::is_symlink(entry.path); });  // takes no room here
  uint64_t room = free_disk_space(directory_);
  for (const StepDirectory& entry : older) room += check_step(entry.path).bytes();
  if (room < bytes) return;
  for (; !older.empty() && !fits(); older.pop_back()) {
    remove_step(older.back(), options_.at_point);
    log_.warning("removed " + older.back().path + " before saving step " + std::to_string(content_.step) +
                 ", because the disk has no space for both; checkpoint.keep is " + std::to_string(keep_.keep));
  }
}

// Rank 0: checks that the step may be saved, and makes a place for the files.
void Save::prepare(uint64_t bytes) {
  at("begin");
  create_directories_durably(directory_);
  sweep_temporaries(directory_, log_);
  at("swept");
  if (fs::exists(fs::symlink_status(final_))) {
    bool valid = true;
    try {
      check_step(final_);
    } catch (const Error& error) {
      valid = false;
      log_.warning(final_ + " is not valid and will be set aside: " + error.what());
    }
    if (valid) throw_crash(final_, " already exists and is valid; nothing is overwritten");
  }
  make_room(bytes);
  require_space(directory_, bytes,
                "lower checkpoint.keep, remove directories superseded-* and broken-*, or free other space");
  if (!fs::create_directory(temporary_)) {
    throw_crash(temporary_, ", left by an interrupted save, cannot be removed; change its permissions, or remove it");
  }
  fsync_directory(directory_);
  at("directory made");
}

// This rank's file.
Manifest Save::write() {
  if (!file_.boxes.empty()) fs::create_directory(temporary_);  // makes a network file system show rank 0's
  Manifest part = write_file(
      temporary_, file_, {.block_bytes = options_.block_bytes, .threads = options_.threads},
      [this](size_t index, int64_t first, int64_t count, std::vector<std::byte>& room) {
        return pieces_[index].rows(first, count, room);
      },
      [this](const char* point) { at(point); });
  part.step = content_.step;
  part.writer = set_.layout();
  return part;
}

// Rank 0. `tensors`: what each rank holds, to compare also those tensors that other ranks write.
void Save::commit(const std::vector<std::string>& reports, std::vector<Manifest> tensors) {
  std::vector<Manifest> parts;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    parts.push_back(parse_manifest(reports[rank], "report of rank " + std::to_string(rank)));
  }
  std::ranges::move(tensors, std::back_inserter(parts));
  bytes_ = commit_step(temporary_, final_, merge(parts), content_, options_.before_commit,
                       [this](const char* point) { at(point); });
}

SaveResult Save::run() {
  const bool leads = world_.rank() == 0;
  const auto start = std::chrono::steady_clock::now();
  // Control plane: every rank takes part in every exchange, whatever happened to it before.
  std::string fault;
  const std::vector<std::string> sizes = world_.gather_text(std::to_string(most_bytes(file_, options_.block_bytes)), 0);
  if (leads) {
    uint64_t total = most_bytes(content_);
    for (const std::string& size : sizes) total += std::stoull(size);
    fault = attempt([&] { prepare(total); });
  }
  fault = world_.broadcast_text(fault, 0);
  if (fault.empty()) {
    std::string report;
    fault = attempt([&] { report = to_text(write()); });
    const std::vector<std::string> faults = world_.gather_text(fault, 0);
    const std::vector<std::string> reports = world_.gather_text(report, 0);
    std::vector<Manifest> tensors = gather_tensors(world_, wanted_of(set_, {.moments = true}));
    for (const std::string& other : faults) {
      if (other != fault && !other.empty()) fault += (fault.empty() ? "" : "\n") + other;
    }
    if (leads && fault.empty()) {
      fault = attempt([&] {
        at("reports gathered");
        commit(reports, std::move(tensors));
      });
    }
    const std::string verdict = world_.broadcast_text(std::to_string(bytes_) + "\n" + fault, 0);
    bytes_ = std::stoull(verdict);
    fault = verdict.substr(verdict.find('\n') + 1);
    if (fault.empty()) {
      if (options_.committed) options_.committed();
      if (leads) apply_retention(directory_, keep_, content_.step, log_, options_.at_point);
      world_.barrier();  // removing may take longer than a step and its deadline
    }
  }
  if (leads && !fault.empty()) {
    std::error_code ignored;  // what stays is swept by the next save
    fs::remove_all(temporary_, ignored);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {.saved = fault.empty(), .reason = fault, .directory = final_, .bytes = bytes_, .seconds = seconds.count()};
}

}  // namespace

std::vector<BoxOfTensor> boxes_to_write(const ParameterSet& set) {
  return file_of(0, pieces_to_write(set)).boxes;
}

SaveResult save_checkpoint(const std::string& directory, const CheckpointContent& content, const ParameterSet& set,
                           ControlPlane& world, const Retention& keep, Log& log, const SaveOptions& options) {
  CHECK(!set.parameters().empty(), "a checkpoint of no parameters");
  if (set.parameters().front()->weight.device() == DeviceKind::meta) {
    SaveResult nothing;
    nothing.saved = true;
    return nothing;
  }
  CHECK(content.step >= 0, "step ", content.step);
  CHECK(options.block_bytes % sizeof(double) == 0, "blocks of ", options.block_bytes, " bytes hold no whole elements");
  return Save(directory, content, set, world, keep, log, options).run();
}

}  // namespace shiftron
