// Shared by the tests of token files: writers of each format, written from its definition, and what an import made.
#pragma once

#include <string>
#include <vector>

#include "data/token_files/import.h"
#include "data/token_files/megatron.h"
#include "data/verify.h"
#include "fixture.h"

namespace shiftron {

using Row = std::vector<int32_t>;
constexpr int32_t kLast = 9;  // of vocabularies of ten tokens: ends documents

template <typename T>
std::string packed(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Numbers as stored in a type.
inline std::string stored(TokenElement element, const Row& ids) {
  std::string raw(ids.size() * size_of(element), '\0');
  narrow(element, ids.data(), static_cast<int64_t>(ids.size()), raw.data());
  return raw;
}

using Sequences = std::vector<Row>;

inline Row joined(const Sequences& sequences) {
  Row all;
  for (const Row& one : sequences) all.insert(all.end(), one.begin(), one.end());
  return all;
}

// An .idx of documents that are sequences; type 8 is u16.
inline std::string megatron_index(const std::vector<Sequences>& documents, int type = 8, size_t width = 2) {
  std::string lengths, pointers, ends = packed(int64_t{0});
  int64_t sequences = 0, bytes = 0;
  for (const Sequences& document : documents) {
    for (const Row& sequence : document) {
      lengths += packed(static_cast<int32_t>(sequence.size()));
      pointers += packed(bytes);
      bytes += static_cast<int64_t>(sequence.size() * width);
      ++sequences;
    }
    ends += packed(sequences);
  }
  return std::string("MMIDIDX\0\0", 9) + packed(uint64_t{1}) + packed(static_cast<uint8_t>(type)) +
         packed(static_cast<uint64_t>(sequences)) + packed(static_cast<uint64_t>(documents.size() + 1)) + lengths +
         pointers + ends;
}

// Writes PREFIX.bin and PREFIX.idx; returns PREFIX.
inline std::string write_megatron(const Scratch& scratch, const std::string& name,
                                  const std::vector<Sequences>& documents, TokenElement element = TokenElement::u16) {
  std::string tokens;
  for (const Sequences& document : documents) tokens += stored(element, joined(document));
  scratch.write(name + ".bin", tokens);
  scratch.write(name + ".idx", megatron_index(documents, megatron_code(element), size_of(element)));
  return scratch / name;
}

// A .npy; `type` is NumPy's, for example "<u2".
inline std::string npy(const std::string& type, const std::string& shape, const std::string& array, int version = 1) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const size_t before = version == 1 ? 10 : 12;
  header.append(64 - (before + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string head = std::string("\x93NUMPY", 6) + static_cast<char>(version) + '\0';
  head += version == 1 ? packed(static_cast<uint16_t>(header.size())) : packed(static_cast<uint32_t>(header.size()));
  return head + header + array;
}

inline std::string npy_mask(const std::string& values) {
  return npy("|b1", "(" + std::to_string(values.size()) + ",)", values);
}

inline std::string llm_c(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::string header = packed(magic) + packed(version) + packed(count);
  return header + std::string(1024 - header.size(), '\0') + tokens;
}

// Options to import files of ten tokens into scratch/name.
inline TokenImport token_import(const Scratch& scratch, const std::vector<std::string>& inputs,
                                const std::string& name = "dataset") {
  TokenImport options;
  options.inputs = inputs;
  options.output = scratch / name;
  options.vocabulary = {.size = 10, .end_of_document = kLast, .tokenizer = {}};
  return options;
}

inline Row all_targets(const std::string& directory) {
  Dataset dataset(directory);
  Row targets(static_cast<size_t>(dataset.tokens()));
  dataset.read_targets(0, dataset.tokens(), targets.data(), true);
  return targets;
}

// Imports, verifies, and returns the dataset's tokens.
inline Row imported(const TokenImport& options, TokenImportResult* result = nullptr) {
  const TokenImportResult made = import_tokens(options);
  if (result != nullptr) *result = made;
  EXPECT_EQ(verify_dataset(options.output).faults, std::vector<std::string>());
  return all_tokens(options.output);
}

}  // namespace shiftron
