// Fills parameters from blocks and rows of a step.
#include "checkpoint/parameter_reads.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "checkpoint/boxes.h"
#include "checkpoint/elements.h"
#include "core/helper_thread.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

// Calls `write` for elements of a parameter from `first` on, cast to the model's type if the step's differs.
template <typename Write>
void write_cast(DType there, const WantedTensor& entry, int64_t first, int64_t count, const std::byte* values,
                Write write) {
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

// Reads what cannot be read block by block, in groups of rows that together hold a few blocks. A helper thread reads
// the next rows while the previous ones are written.
class RowsReader {
 public:
  RowsReader(StepReader& reader, const ParameterSet& set, int threads)
      : reader_(reader), set_(set), helper_(threads > 1) {}

  void read(int tensor, const WantedTensor& entry, const Box& box, int64_t begin) {
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
  // Waits until all of it is written. Until then no other thread may use the reader.
  void finish() {
    helper_.finish();
    std::swap(arrived_, coming_);
    write_arrived();
  }

 private:
  struct Rows {
    const WantedTensor* entry = nullptr;  // null: nothing
    DType type = DType::float32;          // of the values
    int64_t begin = 0;
    std::vector<std::byte> values{};
  };
  void write_arrived() {
    if (arrived_.entry == nullptr) return;
    const WantedTensor& entry = *std::exchange(arrived_.entry, nullptr);
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

void clear(const WantedTensor& entry, const ParameterSet& set) {
  constexpr int64_t kMost = 1 << 20;  // elements
  int64_t end = entry.begin;
  for (const Box& box : entry.boxes) end += box.extent.count();
  const std::vector<std::byte> zeros(
      static_cast<size_t>(std::min(kMost, end - entry.begin) * size_of(entry.tensor.dtype)));
  for (int64_t at = entry.begin; at < end; at += kMost) {
    set.write(*entry.parameter, entry.state, at, std::min(kMost, end - at), zeros.data());
  }
}

// Where the elements of a box go, the first being element `begin` of its parameter; nothing if only rows can be
// written.
std::optional<StepReader::Destination> destination_of(DType there, const WantedTensor& entry, int64_t begin,
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

}  // namespace

std::vector<WantedTensor> wanted_of(const ParameterSet& set, const Wanted& wanted) {
  std::vector<WantedTensor> tensors;
  for (const auto& parameter : set.parameters()) {
    const auto add = [&](TensorGroup group, ParameterState state, Range range) {
      tensors.push_back({{group, parameter->spec.name, parameter->spec.shape, set.types().accumulation},
                         boxes_of_range(parameter->box, range),
                         range.begin,
                         parameter.get(),
                         state});
    };
    const Range all = {0, parameter->box.extent.count()};
    add(TensorGroup::parameters, ParameterState::master, wanted.kept ? parameter->kept : all);
    if (!wanted.moments || !set.training()) continue;
    add(TensorGroup::first_moment, ParameterState::first_moment, parameter->kept);
    add(TensorGroup::second_moment, ParameterState::second_moment, parameter->kept);
  }
  return tensors;
}

std::vector<ManifestTensor> tensors_of(const std::vector<WantedTensor>& wanted) {
  std::vector<ManifestTensor> tensors;
  for (const WantedTensor& entry : wanted) tensors.push_back(entry.tensor);
  return tensors;
}

std::vector<Manifest> gather_tensors(ControlPlane& world, const std::vector<WantedTensor>& wanted) {
  Manifest mine;
  mine.tensors = tensors_of(wanted);
  std::vector<Manifest> lists;
  for (const std::string& text : different_texts(world, to_text(mine))) {
    lists.push_back(parse_manifest(text, "tensors of a rank"));
  }
  return lists;
}

void read_into(StepReader& reader, const std::vector<WantedTensor>& wanted, const ParameterSet& set, int threads) {
  struct Read {
    StepReader::Part part;
    int tensor;
    const WantedTensor* entry;
    const Box* box;
    int64_t begin;
    std::optional<int64_t> place;                // of the part in the box, if it can be read by blocks
    const StepReader::Destination* destination;  // null: by rows
  };
  std::vector<Read> reads;
  std::deque<StepReader::Destination> destinations;
  for (const WantedTensor& entry : wanted) {
    const int tensor = reader.find(entry.tensor.group, entry.tensor.name);
    if (tensor < 0) {  // moments, which a step of parameters alone lacks
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
        of_box.resize(std::min<size_t>(1, of_box.size()));  // replaced by rows of the whole box
      }
      reads.insert(reads.end(), of_box.begin(), of_box.end());
      begin += box.extent.count();
    }
  }
  std::ranges::stable_sort(reads, {}, &Read::part);
  std::vector<StepReader::BlockRead> blocks;  // to be read straight to their destinations
  RowsReader rows(reader, set, threads);
  const auto finish = [&] {
    reader.read_blocks(blocks, threads);
    blocks.clear();
    rows.finish();
  };
  bool by_rows = false;  // whether the previous read was
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

}  // namespace shiftron
