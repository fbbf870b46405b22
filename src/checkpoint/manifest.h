// Manifest: the list of everything in a step directory; a step is valid when its manifest is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/content.h"
#include "core/enum_names.h"
#include "core/hash.h"
#include "parallel/parameter.h"

namespace shiftron {

enum class TensorGroup { parameters, first_moment, second_moment };
constexpr std::array<std::string_view, 3> names_of(TensorGroup) {
  return {"parameters", "first_moment", "second_moment"};
}

struct ManifestTensor {
  TensorGroup group = TensorGroup::parameters;
  std::string name;  // of the ParameterSpec
  Shape shape;       // logical
  DType dtype = DType::float32;
  std::string path() const { return to_string(group) + "/" + name; }
  bool operator==(const ManifestTensor&) const = default;
};

// A box of a tensor, contiguous and row-major in a file.
struct ManifestBox {
  int tensor = 0;  // index
  Box box;
  int file = 0;  // index
  uint64_t byte_offset = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> block_hashes;  // XXH3-64 of every block_bytes bytes; the last block may be shorter
};

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  Hash128 hash;  // XXH3-128
};

struct Manifest {
  int64_t step = 0;
  uint64_t block_bytes = uint64_t{4} << 20;
  ParallelLayout writer;  // for people; nothing depends on it
  std::string configuration, state_json = "{}", data_fingerprint, code_version;
  std::string tokenizer_file = "tokenizer.model";  // its name in the step; `files` has it if the step has a tokenizer
  TokenizerSettings tokenizer_settings{};
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;
  std::vector<ManifestBox> boxes;
  std::string hash{};  // of the text it was read from, as its first line states it; "" if it was not read

  uint64_t bytes() const;  // of all files
  // Path inside the file: "parameters/NAME" if the box is the whole tensor, otherwise "parameters/NAME@OFFSET,OFFSET".
  std::string dataset(const ManifestBox& box) const;
  const ManifestFile* find_file(const std::string& name) const;  // or null
};

// False if there are parameters alone.
bool has_moments(const std::vector<ManifestTensor>& tensors);

// JSON; its first line holds the hash of all bytes after that line.
std::string to_text(const Manifest& manifest);
// Checks the hash and every field: names, bounds, sizes, that no two boxes share bytes. Does not check tiling.
// Throws Error(no_checkpoint) that begins with `source` and names the field.
Manifest parse_manifest(const std::string& text, const std::string& source);
// Throws Error(no_checkpoint) naming the tensor unless the boxes cover every tensor exactly once.
void check_tiling(const Manifest& manifest, const std::string& source);
// Throws Error(no_checkpoint) unless the trainer's state holds its "configuration" and its "trainer".
void check_state(const Manifest& manifest, const std::string& source);
// Merges the manifests of several ranks; tensors are sorted, content is taken from the first. Throws Error(crash) if
// ranks disagree about a tensor.
Manifest merge(const std::vector<Manifest>& parts);

}  // namespace shiftron
