// tokenizer_config.json says which tokens begin and end documents.
#include "tokenizer/hugging_face/load_hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/json_outline.h"
#include "core/json_reason.h"
#include "tokenizer/hugging_face/document_tokens.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/hugging_face/named_tokens.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron {
namespace {

constexpr uint64_t kLargestConfiguration = uint64_t{16} << 20;  // bytes; chat templates are in it
constexpr int kDeepest = 32;                                    // levels of JSON

nlohmann::json parse_object(const std::string& bytes, const std::string& name, const std::string& advice) {
  refuse_deep_json(bytes, kDeepest, [&] { throw_bad_input(name, " is nested more than ", kDeepest, " levels deep"); });
  try {
    nlohmann::json content = nlohmann::json::parse(bytes);
    if (content.is_object()) return content;
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(name, " is not JSON: ", printable(json_reason(error)), "; ", advice);
  }
  throw_bad_input(name, " is JSON, but not an object; ", advice);
}

}  // namespace

bool recognises_hugging_face(const std::string& bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string::npos && bytes[first] == '{';
}

std::unique_ptr<Tokenizer> make_hugging_face(std::string bytes, const TokenizerSettings& settings,
                                             const std::string& name, const std::string& advice) {
  const nlohmann::json content = parse_object(bytes, name, advice);
  if (settings.end_of_document < 0) throw_bad_input(name, " is stored without the token that ends its documents");
  return std::make_unique<HuggingFaceTokenizer>(std::move(bytes), content, settings, name);
}

std::unique_ptr<Tokenizer> load_hugging_face(std::string bytes, const std::string& path, const TokenizerChoice& choice,
                                             const std::string& advice) {
  const nlohmann::json content = parse_object(bytes, path, advice);
  const JsonPart file(content, path);
  nlohmann::json configuration;
  const std::filesystem::path neighbour = std::filesystem::path(path).replace_filename("tokenizer_config.json");
  const std::string file_name = std::filesystem::path(path).filename();
  const bool is_of_model = file_name == kHuggingFaceFile || file_name == kSentencePieceFile;
  const bool has_neighbour = is_of_model && name_exists(neighbour.string());
  if (has_neighbour)
    configuration = parse_object(read_file(neighbour.string(), kLargestConfiguration), neighbour.string(), advice);
  std::vector<AddedToken> tokens = read_added_tokens(file["added_tokens"]);
  for (const std::string& text : names_of_document_tokens(JsonPart(configuration, neighbour.string()), choice)) {
    if (std::ranges::find(tokens, text, &AddedToken::text) != tokens.end()) continue;
    if (auto token = named_token(file["model"], text)) tokens.push_back(std::move(*token));
  }
  const TokenizerSettings settings = document_tokens(tokens, read_post_processor(file["post_processor"]),
                                                     JsonPart(configuration, neighbour.string()), choice, path);
  return std::make_unique<HuggingFaceTokenizer>(std::move(bytes), content, settings, path);
}

}  // namespace shiftron
