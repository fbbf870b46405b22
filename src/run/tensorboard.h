// TensorBoard event files with the scalars of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace shiftron {

// One file per start. Never throws: records that cannot be written wait, in order, for the next call, up to
// kMostWaiting bytes.
class TensorBoard {
 public:
  TensorBoard() = default;  // writes nothing
  // Creates a new file in `directory`; scalars of older files from `first_step` on are superseded.
  TensorBoard(const std::string& directory, int64_t first_step);
  using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value
  void write(int64_t step, const Scalars& scalars);

 private:
  static constexpr size_t kMostWaiting = size_t{16} << 20;  // beyond that, later records are dropped
  void append(const std::string& event);
  std::string path_, waiting_;
};

// Every number of a line of metrics.jsonl except its step: "loss", and "shift/0/key/1" for nested ones. Null is NaN.
TensorBoard::Scalars scalars_of(const nlohmann::ordered_json& line);

// CRC-32C (Castagnoli) as records hold it: rotated and shifted.
uint32_t masked_crc32c(const std::string& bytes);

}  // namespace shiftron
