// The commit protocol: prepare, write and read back, gather, manifest, renames.
#include "checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "checkpoint/boxes.h"
#include "checkpoint/step_size.h"
#include "checkpoint/verify.h"
#include "core/check.h"
#include "core/file.h"
#include "core/hdf5_file.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// A box that this rank writes.
struct Piece {
  ManifestTensor tensor;
  Box box;
  const ParameterSet* set;
  const Parameter* parameter;  // whose these are
  ParameterState state;
  int64_t begin;  // of its first element, among the parameter's

  int64_t count() const { return box.extent.count(); }
  uint64_t bytes() const { return static_cast<uint64_t>(count() * size_of(tensor.dtype)); }
  // Elements [first, first + count): where they lie, or in `room`.
  const void* elements(int64_t first, int64_t count, std::vector<std::byte>& room) const {
    return set->read(*parameter, state, begin + first, count, room);
  }
};

// Elements `range` of every state of a parameter.
std::vector<Piece> pieces_of(const ParameterSet& set, const Parameter& parameter, Range range) {
  std::vector<Piece> pieces;
  const std::vector<Box> boxes = boxes_of_range(parameter.box, range);
  const auto add = [&](TensorGroup group, ParameterState state) {
    int64_t begin = range.begin;
    for (const Box& box : boxes) {
      pieces.push_back({{group, parameter.spec.name, parameter.spec.shape, set.types().accumulation},
                        box, &set, &parameter, state, begin});
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

// Of the equal copies of a box, those of the owning tp rank and stage write. Of its data-parallel copies each writes its
// part where these are divided; else they share the work by bytes, each parameter going to the copy that has least so far.
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
                   [](const Piece& a, const Piece& b) { return a.tensor.group < b.tensor.group; });
  return pieces;
}

// Upper bound of what these pieces add to a step.
uint64_t most_bytes(const std::vector<Piece>& pieces, uint64_t block_bytes) {
  std::vector<DatasetSize> datasets;
  for (const Piece& piece : pieces) {
    const bool whole = piece.box.extent == piece.tensor.shape;
    datasets.push_back({piece.tensor.path() + (whole ? "" : "@" + piece.box.text()), piece.bytes()});
  }
  return most_file_bytes(datasets) + most_manifest_bytes(datasets, block_bytes);
}

std::vector<uint64_t> block_hashes(const Piece& piece, uint64_t block_bytes) {
  const int64_t size = size_of(piece.tensor.dtype);
  const int64_t block = static_cast<int64_t>(block_bytes) / size;
  std::vector<uint64_t> hashes;
  std::vector<std::byte> room;
  for (int64_t at = 0; at < piece.count(); at += block) {
    const int64_t count = std::min(block, piece.count() - at);
    hashes.push_back(xxh3_64(piece.elements(at, count, room), static_cast<size_t>(count * size)));
  }
  return hashes;
}

// In rows of about `block_bytes` together.
void write_dataset(Hdf5File& file, const std::string& dataset, const Piece& piece, uint64_t block_bytes) {
  std::vector<int64_t> shape;
  for (int dim = 0; dim < piece.box.extent.dims(); ++dim) shape.push_back(piece.box.extent[dim]);
  file.create_dataset(dataset, piece.tensor.dtype == DType::float64 ? Hdf5Type::f64 : Hdf5Type::f32, shape);
  const int64_t row = piece.count() / shape[0];
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(block_bytes) / (row * size_of(piece.tensor.dtype)));
  std::vector<std::byte> room;
  for (int64_t at = 0; at < shape[0]; at += most) {
    const int64_t rows = std::min(most, shape[0] - at);
    file.write_range(dataset, at, rows, piece.elements(at * row, rows * row, room));
  }
}

class Save {
 public:
  Save(const std::string& directory, const CheckpointContent& content, const ParameterSet& set, ControlPlane& world,
       Log& log, const SaveOptions& options)
      : directory_(directory),
        final_(directory + "/" + step_name(content.step)),
        temporary_(final_ + ".tmp"),
        content_(content),
        set_(set),
        world_(world),
        log_(log),
        options_(options),
        pieces_(pieces_to_write(set)) {}

  SaveResult run(const Retention& keep);

 private:
  void at(const char* point) const {
    if (options_.at_point) options_.at_point(point);
  }
  // Runs `work` and returns what went wrong, "" = nothing.
  template <typename Work>
  std::string attempt(Work work) const;
  void prepare(uint64_t bytes);
  Manifest write_file();
  Manifest describe(const std::string& name) const;
  void read_back(const FileDescriptor& file, Manifest& part) const;
  void commit(const std::vector<std::string>& reports);
  void write_synced(const std::string& name, const std::string& bytes) const;

  const std::string directory_, final_, temporary_;
  const CheckpointContent& content_;
  const ParameterSet& set_;
  ControlPlane& world_;
  Log& log_;
  const SaveOptions& options_;
  const std::vector<Piece> pieces_;
  uint64_t bytes_ = 0;
};

template <typename Work>
std::string Save::attempt(Work work) const {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return "rank " + std::to_string(world_.rank()) + ": " + error.what();
  }
}

// Rank 0: a place for the files, if the step may be saved at all.
void Save::prepare(uint64_t bytes) {
  at("begin");
  fs::create_directories(directory_);
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
    if (valid) throw_crash(final_, " is there already and valid; nothing is overwritten");
  }
  const uint64_t available = free_disk_space(directory_);
  if (available < bytes) {
    throw_crash("free space on the disk of ", directory_, " is ", available, " bytes, the checkpoint needs ", bytes,
                "; lower checkpoint.keep or free some");
  }
  fs::create_directory(temporary_);
  fsync_directory(directory_);
  at("directory made");
}

// This rank's tensors, written or not, and its boxes as they stand in memory.
Manifest Save::describe(const std::string& name) const {
  Manifest part;
  part.step = content_.step;
  part.block_bytes = options_.block_bytes;
  part.writer = set_.layout();
  std::vector<std::string> paths;
  for (const auto& parameter : set_.parameters()) {
    for (const Piece& piece : pieces_of(set_, *parameter, {0, parameter->box.extent.count()})) {
      part.tensors.push_back(piece.tensor);
      paths.push_back(piece.tensor.path());
    }
  }
  if (!pieces_.empty()) part.files.push_back({name, 0, {}});
  for (const Piece& piece : pieces_) {
    const auto found = std::find(paths.begin(), paths.end(), piece.tensor.path());
    part.boxes.push_back({.tensor = static_cast<int>(found - paths.begin()),
                          .box = piece.box,
                          .bytes = piece.bytes(),
                          .block_hashes = block_hashes(piece, options_.block_bytes)});
  }
  return part;
}

Manifest Save::write_file() {
  const std::string digits = std::to_string(world_.rank());
  const std::string name = "rank-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".h5";
  Manifest part = describe(name);
  if (pieces_.empty()) return part;
  const std::string path = temporary_ + "/" + name;
  fs::create_directory(temporary_);  // makes a network file system see the one of rank 0
  Hdf5File file = Hdf5File::create(path);
  // Opened before the data is written, so that sync() reports every error of writing it.
  FileDescriptor written = FileDescriptor::open_for_reading(path, false);
  at("file created");
  for (size_t i = 0; i < pieces_.size(); ++i) {
    write_dataset(file, part.dataset(part.boxes[i]), pieces_[i], options_.block_bytes);
    if (i == pieces_.size() / 2) at("half written");
  }
  file.close();
  at("file closed");
  written.sync();
  fsync_directory(temporary_);
  at("file synced");
  read_back(written, part);
  at("file verified");
  return part;
}

// What the disk holds must be what memory held; fills in places and the file's hash.
void Save::read_back(const FileDescriptor& file, Manifest& part) const {
  {
    const Hdf5File view = Hdf5File::open(file.path());
    for (ManifestBox& box : part.boxes) box.byte_offset = view.info(part.dataset(box)).byte_offset;
  }
  std::vector<const ManifestBox*> order;
  for (const ManifestBox& box : part.boxes) order.push_back(&box);
  std::sort(order.begin(), order.end(),
            [](const ManifestBox* a, const ManifestBox* b) { return a->byte_offset < b->byte_offset; });
  std::vector<Segment> segments;
  for (const ManifestBox* box : order) segments.push_back({box->byte_offset, box->bytes});
  const FileHashes hashes = hash_file(file, segments, options_.block_bytes);
  for (size_t i = 0; i < order.size(); ++i) {
    if (hashes.blocks[i] != order[i]->block_hashes) {
      throw_crash(file.path(), ": ", part.dataset(*order[i]), " reads back other bytes than were written");
    }
  }
  part.files.front().bytes = file.size();
  part.files.front().hash = hashes.whole;
}

void Save::write_synced(const std::string& name, const std::string& bytes) const {
  FileDescriptor file = FileDescriptor::create(temporary_ + "/" + name);
  file.append(bytes.data(), bytes.size());
  file.sync();
  file.close();
}

// Rank 0: the step exists from the last rename on, not before.
void Save::commit(const std::vector<std::string>& reports) {
  std::vector<Manifest> parts;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    parts.push_back(parse_manifest(reports[rank], "report of rank " + std::to_string(rank)));
  }
  Manifest manifest = merge(parts);
  manifest.configuration = content_.configuration;
  manifest.state_json = content_.state_json;
  manifest.data_fingerprint = content_.data_fingerprint;
  manifest.code_version = content_.code_version;
  if (!content_.tokenizer_model.empty()) {
    manifest.files.push_back({kTokenizerName, content_.tokenizer_model.size(), xxh3_128(content_.tokenizer_model)});
    write_synced(kTokenizerName, content_.tokenizer_model);
  }
  at("tokenizer written");
  const std::string text = to_text(manifest);
  check_tiling(parse_manifest(text, "manifest to be written"), "manifest to be written");

  const std::string unfinished = std::string(kManifestName) + ".tmp";
  write_synced(unfinished, text);
  at("manifest written");
  fs::rename(temporary_ + "/" + unfinished, temporary_ + "/" + kManifestName);
  at("manifest renamed");
  fsync_directory(temporary_);
  at("step synced");
  if (options_.before_commit) options_.before_commit();
  if (fs::exists(fs::symlink_status(final_))) set_aside(final_, "broken-");
  fs::rename(temporary_, final_);
  try {
    at("step renamed");
    fsync_directory(directory_);
  } catch (...) {  // it may not survive a power loss: told as failed, so it must not be found either
    fs::rename(final_, temporary_);
    throw;
  }
  at("committed");
  bytes_ = manifest.bytes() + text.size();
}

SaveResult Save::run(const Retention& keep) {
  const bool leads = world_.rank() == 0;
  const auto start = std::chrono::steady_clock::now();
  // Control plane: every rank passes every exchange, whatever happened to it before.
  std::string fault;
  const std::vector<std::string> sizes = world_.gather_text(std::to_string(most_bytes(pieces_, options_.block_bytes)), 0);
  if (leads) {
    constexpr uint64_t kFrame = 16 << 10;  // the manifest's own fields, pages begun by the small files, the directory
    uint64_t total = content_.tokenizer_model.size() + kFrame;
    total += 2 * (content_.configuration.size() + content_.state_json.size());  // escaped
    for (const std::string& size : sizes) total += std::stoull(size);
    fault = attempt([&] { prepare(total); });
  }
  fault = world_.broadcast_text(fault, 0);
  if (fault.empty()) {
    std::string report;
    fault = attempt([&] { report = to_text(write_file()); });
    const std::vector<std::string> faults = world_.gather_text(fault, 0);
    const std::vector<std::string> reports = world_.gather_text(report, 0);
    for (const std::string& other : faults) {
      if (other != fault && !other.empty()) fault += (fault.empty() ? "" : "\n") + other;
    }
    if (leads && fault.empty()) {
      fault = attempt([&] {
        at("reports gathered");
        commit(reports);
      });
    }
    const std::string verdict = world_.broadcast_text(std::to_string(bytes_) + "\n" + fault, 0);
    bytes_ = std::stoull(verdict);
    fault = verdict.substr(verdict.find('\n') + 1);
  }
  if (leads && !fault.empty()) {
    std::error_code ignored;  // what stays is swept by the next save
    fs::remove_all(temporary_, ignored);
  }
  if (leads && fault.empty()) {
    const std::string trouble =
        attempt([&] { apply_retention(directory_, keep, content_.step, log_, options_.at_point); });
    if (!trouble.empty()) log_.warning("cannot remove old checkpoints: " + trouble);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {.saved = fault.empty(), .reason = fault, .directory = final_, .bytes = bytes_, .seconds = seconds.count()};
}

}  // namespace

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
  return Save(directory, content, set, world, log, options).run(keep);
}

}  // namespace shiftron
