// Writes a step's model as files of other programs, and reports on them.
#include "cli/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "cli/byte_progress.h"
#include "cli/model_card.h"
#include "cli/print_json.h"
#include "core/check.h"
#include "core/foreign_text.h"
#include "interchange/export_check.h"
#include "interchange/gguf_export.h"
#include "interchange/gguf_tokenizer.h"
#include "interchange/hugging_face_export.h"
#include "interchange/hugging_face_tokenizer.h"
#include "run/overflow.h"
#include "run/saved_state.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

SafetensorsType type_of(const CommandLine& line, Precision trained, SafetensorsType widest) {
  const std::string precision = line.text("precision", to_string(trained));
  if (precision == "fp64") return widest;
  return precision == "bf16" ? SafetensorsType::BF16 : precision == "f16" ? SafetensorsType::F16 : SafetensorsType::F32;
}

HuggingFaceForm form_of(const CommandLine& line, const ModelConfig& model) {
  return *from_string<HuggingFaceForm>(line.text("as", to_string(usual_form(model))));
}

void refuse_difference(const ExportCheck& check) {
  if (check.passed) return;
  throw_crash("the export does not compute the same as the model: logits of ", check.tokens, " tokens differ by up to ",
              check.largest_difference, ", but at most ", check.allowed,
              " is allowed. The export was removed; check the step with `shiftron checkpoint verify`");
}

// Prints JSON or lines: `what` says what was written, `notes` what about it may be unexpected.
void notify(const CommandLine& line, Json json, const ExportCheck& check, const std::string& what,
            std::vector<std::string> notes) {
  const std::string overflow = overflow_warning(check.longest_activation, "compute with the export in float64");
  if (!overflow.empty()) notes.push_back(overflow);
  if (line.has("json")) {
    if (!notes.empty()) json["note"] = fmt::format("{}", fmt::join(notes, "\n"));
    json["check"] = {{"tokens", check.tokens},
                     {"largest_difference", check.largest_difference},
                     {"largest_logit", check.largest_logit},
                     {"allowed", check.allowed}};
    print_json(json);
    std::cout.flush();
    return;
  }
  std::cout << what << "\n";
  for (const std::string& note : notes) std::cout << "note: " << printable_value(note) << "\n";
  std::cout << fmt::format("checked on {} tokens: logits up to {:.3g} in size differ by at most {:.3g}\n", check.tokens,
                           check.largest_logit, check.largest_difference)
            << std::flush;
}

// The tokenizer as `make` writes it, or nothing if the format cannot represent it; `notes` then gets the reason and
// `instead`.
template <typename Make>
auto make_if_representable(Make make, const std::string& instead, std::vector<std::string>& notes)
    -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    notes.push_back(std::string(error.what()) + "; " + instead);
    return std::nullopt;
  }
}

// The tokenizer's files, without tokenizer.json if that cannot represent it.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer, std::vector<std::string>& notes) {
  auto files =
      make_if_representable([&] { return hugging_face_tokenizer(tokenizer); },
                            "so tokenizer.json is not written, and transformers cannot load the tokenizer: read "
                            "tokenizer.model with the package sentencepiece",
                            notes);
  if (!files) files = {{"tokenizer_config.json", refusing_tokenizer_config()}};
  (*files)[tokenizer.file().name] = tokenizer.file().bytes;
  return std::move(*files);
}

ExportedTokenizer exported_tokenizer(const std::map<std::string, std::string>& files) {
  return files.empty()                      ? ExportedTokenizer::none
         : files.contains("tokenizer.json") ? ExportedTokenizer::json
                                            : ExportedTokenizer::sentencepiece;
}

// Texts in GGUF are UTF-8.
std::string name_of(std::string file) {
  while (file.size() > 1 && file.ends_with('/')) file.pop_back();
  return printable(fs::path(file).stem().string());
}

// Tokens that end a text: the tokenizer's own first, then those that the model came with.
std::vector<int64_t> end_tokens_of(const ModelOrigin& origin, int64_t own) {
  std::vector<int64_t> ends = {own};
  std::ranges::copy_if(origin.end_tokens, std::back_inserter(ends), [&](int64_t token) { return token != own; });
  return ends;
}

// A tokenizer's own end token comes first: see end_tokens_of(). Without one, the token that ended documents in
// training.
ModelOrigin origin_of(const CheckpointModel& model) {
  const SavedState state = saved_state(model.content.state_json, model.directory);
  ModelOrigin origin = state.origin;
  if (state.end_of_document) origin.end_tokens = end_tokens_of(origin, *state.end_of_document);
  return origin;
}

// Context length in tokens that the model is made for, here or in the program that it comes from.
int64_t positions_of(const CheckpointModel& model, const ModelOrigin& origin) {
  return std::max(origin.positions, model.config.train.sequence_length);
}

const std::string kNoEndToken = "no token ends a text, so generation always continues to its length limit";

// A file has room for two, which must be among its `vocab` tokens.
void add_end_tokens(std::vector<int64_t> ends, int64_t vocab, std::vector<GgufEntry>& entries,
                    std::vector<std::string>& notes) {
  const auto beyond = std::ranges::stable_partition(ends, [&](int64_t token) { return token < vocab; });
  if (!beyond.empty()) {
    notes.push_back(fmt::format("{} would also end a text, but the tokenizer, and so the file, has only {} tokens",
                                fmt::join(beyond, ", "), vocab));
    ends.erase(beyond.begin(), beyond.end());
  }
  constexpr const char* kKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
  const size_t said = std::min(ends.size(), std::size(kKeys));
  for (size_t i = 0; i < said; ++i) entries.push_back({kKeys[i], static_cast<uint32_t>(ends[i])});
  if (ends.empty()) notes.push_back(kNoEndToken);
  if (ends.size() > said) {
    notes.push_back(fmt::format("the file format has two tokens that end a text; these are not written: {}",
                                fmt::join(ends.begin() + static_cast<std::ptrdiff_t>(said), ends.end(), ", ")));
  }
}

// Entries for tokens in a file without a tokenizer; `ends`: tokens that end a text.
std::vector<GgufEntry> entries_without_tokenizer(const ModelOrigin& origin, std::vector<int64_t> ends, int64_t vocab,
                                                 std::vector<std::string>& notes) {
  std::vector<GgufEntry> entries = {{"tokenizer.ggml.model", std::string("none")}};
  add_end_tokens(std::move(ends), vocab, entries, notes);
  if (origin.begin_token && *origin.begin_token < vocab)
    entries.push_back({"tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*origin.begin_token)});
  return entries;
}

// Entries of the tokenizer, or that there is none. `vocab` is the model's size and becomes the tokenizer's, because
// llama.cpp has no list of tokens that must not be generated, unlike Hugging Face's generation_config.json.
std::vector<GgufEntry> tokenizer_entries(const CheckpointModel& model, const ModelOrigin& origin, int64_t& vocab,
                                         std::vector<std::string>& notes) {
  std::vector<int64_t> ends = origin.end_tokens;
  if (!model.content.tokenizer.is_there()) return entries_without_tokenizer(origin, ends, vocab, notes);
  const auto say = [&] {
    const std::unique_ptr<const Tokenizer> tokenizer = tokenizer_of(model);
    vocab = tokenizer->vocab_size();
    ends = end_tokens_of(origin, tokenizer->end_of_document());
    return gguf_tokenizer(*tokenizer);
  };
  auto said = make_if_representable(
      say, "so the file has no tokenizer, and llama.cpp can only read and write token ids", notes);
  if (!said) return entries_without_tokenizer(origin, ends, vocab, notes);
  GgufTokenizer& tokenizer = *said;
  if (!tokenizer.note.empty()) notes.push_back(tokenizer.note);
  // A tokenizer without a beginning token: the end token separates documents.
  const uint32_t beginning = tokenizer.beginning_of_document.value_or(tokenizer.end_of_document);
  std::vector<GgufEntry> entries = {{"tokenizer.ggml.model", tokenizer.model},
                                    {"tokenizer.ggml.pre", tokenizer.pre},
                                    {"tokenizer.ggml.tokens", std::move(tokenizer.pieces)},
                                    {"tokenizer.ggml.token_type", std::move(tokenizer.types)},
                                    {"tokenizer.ggml.bos_token_id", beginning},
                                    {"tokenizer.ggml.add_bos_token", tokenizer.beginning_of_document.has_value()},
                                    {"tokenizer.ggml.add_eos_token", false},
                                    {"tokenizer.ggml.add_space_prefix", tokenizer.add_space_prefix},
                                    {"tokenizer.ggml.remove_extra_whitespaces", false}};
  if (!tokenizer.scores.empty()) entries.push_back({"tokenizer.ggml.scores", std::move(tokenizer.scores)});
  if (!tokenizer.merges.empty()) entries.push_back({"tokenizer.ggml.merges", std::move(tokenizer.merges)});
  if (tokenizer.unknown) entries.push_back({"tokenizer.ggml.unknown_token_id", *tokenizer.unknown});
  add_end_tokens(std::move(ends), vocab, entries, notes);
  return entries;
}

}  // namespace

int export_hugging_face(const CommandLine& line, const CheckpointModel& model) {
  StepReader source(model.directory, check_step(model.directory));
  const ModelOrigin origin = origin_of(model);
  HuggingFaceExport how;
  how.config = {.model = model.config.model,
                .form = form_of(line, model.config.model),
                .type = type_of(line, model.config.train.precision, SafetensorsType::F64),
                .positions = positions_of(model, origin),
                .end_tokens = origin.end_tokens,
                .begin_token = origin.begin_token};
  std::vector<std::string> notes;
  if (model.content.tokenizer.is_there()) {
    const auto tokenizer =
        make_if_representable([&] { return tokenizer_of(model); }, "so the export has no tokenizer", notes);
    if (tokenizer) {
      how.config.end_tokens = end_tokens_of(origin, (*tokenizer)->end_of_document());
      how.config.tokenizer_vocab = (*tokenizer)->vocab_size();
      how.files = tokenizer_files(**tokenizer, notes);
    }
  }
  if (how.config.end_tokens.empty()) notes.push_back(kNoEndToken);
  ByteProgress progress("writing");
  how.progress = progress.callback();
  ExportCheck check;
  how.check = [&](const std::string& directory) -> std::map<std::string, std::string> {
    progress.finish();
    check = check_export(source, how.config.model, how.config.type, directory);
    refuse_difference(check);
    return {{"README.md", model_card(model, how.config, exported_tokenizer(how.files), check)}};
  };
  how.notify = [&](const WrittenExport& written) {
    notify(line,
           {{"directory", written.directory},
            {"form", to_string(how.config.form)},
            {"precision", dtype_name(how.config.type)},
            {"bytes", written.bytes},
            {"files", written.files}},
           check,
           fmt::format("{}: {} in {}, {:.1f} MB in {} files", written.directory, to_string(how.config.form),
                       dtype_name(how.config.type), static_cast<double>(written.bytes) / 1e6, written.files.size()),
           notes);
  };
  write_hugging_face(source, how, line.text("output"));
  return 0;
}

int export_gguf(const CommandLine& line, const CheckpointModel& model) {
  const std::string file = line.text("output");
  refuse_gguf_of(model.config.model);
  StepReader step(model.directory, check_step(model.directory));
  const ModelOrigin origin = origin_of(model);
  std::vector<std::string> notes;
  GgufExport how{.model = model.config.model,
                 .type = type_of(line, model.config.train.precision, SafetensorsType::F32),
                 .positions = positions_of(model, origin),
                 .entries = {{"general.name", name_of(file)}}};
  for (GgufEntry& entry : tokenizer_entries(model, origin, how.model.vocab, notes))
    how.entries.push_back(std::move(entry));
  FirstTokens source(step, how.model.vocab);
  ByteProgress progress("writing");
  how.progress = progress.callback();
  ExportCheck check;
  how.check = [&](const std::string& path) {
    progress.finish();
    check = check_export(source, gguf_rounded(how.model), {how.type, SafetensorsType::F32}, path);
    refuse_difference(check);
  };
  how.notify = [&](uint64_t bytes) {
    notify(line, {{"file", file}, {"precision", dtype_name(how.type)}, {"bytes", bytes}}, check,
           fmt::format("{}: llama in {}, {:.1f} MB", file, dtype_name(how.type), static_cast<double>(bytes) / 1e6),
           notes);
  };
  write_gguf(source, how, file);
  return 0;
}

}  // namespace shiftron::cli
