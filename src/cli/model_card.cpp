// Markdown with the front matter that Hugging Face's hub reads.
#include "cli/model_card.h"

#include <fmt/format.h>

#include "core/check.h"
#include "core/foreign_text.h"
#include "interchange/embedded_files.h"
#include "run/saved_state.h"

namespace shiftron::cli {
namespace {

std::string shift_text(const ShiftConfig& shift) {
  if (most_previous_tokens(shift) == 0) return "none";
  return fmt::format(
      "previous tokens mixed into queries {}, keys {}, values {}; trained in the form `{}`, exported as plain taps",
      shift.query, shift.key, shift.value, to_string(shift.form));
}

// The lines of a text as code, joined by commas.
std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  for (size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2) text.replace(at, 1, ", ");
  return markdown_code(text);
}

// "5.23.0, 5.24.0": releases of transformers, from the line TESTED of the module that an export carries.
std::string tested_releases() {
  constexpr std::string_view line = "\nTESTED = (";
  const std::string_view module = modeling_kv_shift_llama();
  const size_t begin = module.find(line), end = module.find(')', begin);
  CHECK(begin != module.npos && end != module.npos, "no line TESTED in ", kModelModule, ".py");
  std::string releases(module.substr(begin + line.size(), end - begin - line.size()));
  std::erase(releases, '"');
  return releases;
}

std::string loading(HuggingFaceForm form, ExportedTokenizer tokenizer, const ModelConfig& model) {
  const bool shifts = most_previous_tokens(model.shift) > 0;
  if (form == HuggingFaceForm::canon) {
    return "This is a LlamaCanon of [PhysicsLM4](https://github.com/facebookresearch/PhysicsLM4), whose code is not "
           "included: put\n"
           "`configuration_llama_canon.py`, `modeling_llama_canon.py` and `canon_helper.py` of its folder "
           "`huggingface` into this\n"
           "directory, then load it with `trust_remote_code=True`. Its convolution state supports a prompt followed by "
           "single tokens,\n"
           "not prompts in several pieces.\n";
  }
  const char* trust = form == HuggingFaceForm::kv_shift ? ", trust_remote_code=True" : "";
  std::string text = fmt::format(
      "```python\nfrom transformers import AutoModelForCausalLM{1}\n"
      "model = AutoModelForCausalLM.from_pretrained(DIRECTORY{0})\n{2}```\n",
      trust, tokenizer == ExportedTokenizer::json ? ", AutoTokenizer" : "",
      tokenizer == ExportedTokenizer::json
          ? fmt::format("tokenizer = AutoTokenizer.from_pretrained(DIRECTORY{})\n", trust)
          : "");
  if (tokenizer == ExportedTokenizer::sentencepiece) {
    text +=
        "\n`tokenizer.json` cannot represent this tokenizer, so `AutoTokenizer` would give other ids. Use the package "
        "sentencepiece,\nline by line: `sentencepiece.SentencePieceProcessor(model_file=\"tokenizer.model\")`.\n";
  }
  if (form == HuggingFaceForm::kv_shift) {
    text += fmt::format(
        "\n`{}.py` in this directory computes the model. It is tested with transformers {}, refuses\nolder releases "
        "and warns with newer ones. {}\n",
        kModelModule, tested_releases(),
        shifts ? "Loaded as a plain Llama, it would lose its shift and compute something else."
               : fmt::format("transformers cannot load a plain Llama whose width, {}, is not a multiple of its number "
                             "of heads, {}.",
                             model.hidden, model.heads));
  }
  return text;
}

}  // namespace

std::string model_card(const CheckpointModel& model, const HuggingFaceConfig& written, ExportedTokenizer tokenizer,
                       const ExportCheck& check) {
  const RunConfig& config = model.config;
  const ModelConfig& sizes = config.model;
  const int64_t tokens = model.content.step * config.train.global_batch * config.train.sequence_length;
  std::string text =
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- kv-shifting-attention\n---\n\n"
      "# A language model with KV shifting attention\n\n";
  if (most_previous_tokens(sizes.shift) == 0)
    text = "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n# A language model\n\n";
  const SavedState state = saved_state(model.content.state_json, model.directory);
  const bool trained = state.imported_from.empty();
  const std::string& from = state.origin.from;
  text += !trained       ? "Exported by Shiftron. "
          : from.empty() ? "Trained and exported by Shiftron. "
                         : "Trained further and exported by Shiftron. ";
  text +=
      "Formula of the shift: \"KV Shifting Attention Enhances Language "
      "Modeling\".\n\n| | |\n|---|---|\n";
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("| {} | {} |\n", name, value);
  };
  row("parameters", fmt::format("{:.0f}", parameter_count(sizes)));
  row("sizes", fmt::format("{} layers, width {}, {} query heads, {} key and value heads, head width {}, feed-forward "
                           "width {}, vocabulary {}{}",
                           sizes.layers, sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.ffn,
                           sizes.vocab, sizes.tie_embeddings ? ", head tied to the embedding" : ""));
  row("shift", shift_text(sizes.shift));
  const std::string training = fmt::format("{} steps of {} sequences of {} tokens: {} tokens", model.content.step,
                                           config.train.global_batch, config.train.sequence_length, tokens);
  if (from.empty()) {
    row("training", training);
  } else {
    row("origin",
        "imported from " + one_line(from) + (trained ? ", then trained here: " + training : ", not trained since"));
  }
  row("precision",
      fmt::format("{}written in {}", trained ? fmt::format("trained in {}, ", to_string(config.train.precision)) : "",
                  dtype_name(written.type)));
  if (trained) row("data fingerprint", markdown_code(model.content.data_fingerprint));
  row("code", one_line(model.content.code_version));
  text += "\n## Loading\n\n" + loading(written.form, tokenizer, sizes);
  text += fmt::format(
      "\n## Check\n\nThe export was checked before this directory was created. The trainer's own model and a reader "
      "that uses only these\nfiles computed the logits of {0} tokens, both in float64 from the exported weights. "
      "Logits up to {2:.3g} in size differed by at most\n{1:.3g}; {3:.3g} was allowed.\n",
      check.tokens, check.largest_difference, check.largest_logit, check.allowed);
  return text;
}

}  // namespace shiftron::cli
