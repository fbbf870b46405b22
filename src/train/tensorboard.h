// TensorBoard event files: scalars of a run, for the dashboards that people already have open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace shiftron {

// One file of one start. Never throws: records that cannot be written wait, in order, for the next call, up to
// kMostWaiting bytes of them.
class TensorBoard {
 public:
  TensorBoard() = default;  // writes nothing
  // A new file in `directory`; scalars that older files hold from `first_step` on are superseded.
  TensorBoard(const std::string& directory, int64_t first_step);
  using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value
  void write(int64_t step, const Scalars& scalars);

 private:
  static constexpr size_t kMostWaiting = size_t{16} << 20;  // of more the later records are dropped
  void append(const std::string& event);
  std::string path_, waiting_;
};

// Every number of a line of metrics.jsonl but its step: "loss", and of what is nested "shift/0/key/1". Null is NaN.
TensorBoard::Scalars scalars_of(const nlohmann::ordered_json& line);

// CRC-32C (Castagnoli), as records carry it: rotated and shifted.
uint32_t masked_crc32c(const std::string& bytes);

}  // namespace shiftron
