// Bytes as the text after the first line of a manifest; that line gets the right hash, so that the parser is reached.
// What is accepted is the same after it is written and read again, and its boxes are checked by the checker of tilings.
#include "checkpoint/manifest.h"
#include "fuzz/input.h"

namespace shiftron::fuzz {
namespace {

std::string read_text(const std::string& text) {
  Manifest manifest;
  std::string refusal = refusal_of([&] { manifest = parse_manifest(text, "manifest.json"); });
  if (!refusal.empty()) return refusal;
  for (const ManifestBox& box : manifest.boxes) {
    const ManifestFile& file = manifest.files.at(static_cast<size_t>(box.file));
    require(box.bytes > 0 && box.byte_offset <= file.bytes && box.bytes <= file.bytes - box.byte_offset,
            "a box lies within its file");
    require(box.block_hashes.size() == (box.bytes + manifest.block_bytes - 1) / manifest.block_bytes,
            "every block has a hash");
  }
  const std::string again = to_text(manifest);
  require(to_text(parse_manifest(again, "again")) == again, "what is written reads as the same");
  refusal = refusal_of([&] { check_tiling(manifest, "manifest.json"); });
  const std::string of_state = refusal_of([&] { check_state(manifest, "manifest.json"); });
  return refusal.empty() ? of_state : refusal;
}

}  // namespace

std::string read_input(std::string_view bytes) {
  const std::string body(bytes);
  require(!read_text(body).empty() || body.starts_with("{\"xxh3_128\":\""), "a manifest begins with its hash");
  return read_text("{\"xxh3_128\":\"" + to_hex(xxh3_128(body)) + "\",\n" + body);
}

}  // namespace shiftron::fuzz
