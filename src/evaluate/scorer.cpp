// From requests to tokens, from scores to answers; prompts to continue are distributed over groups of ranks.
#include "evaluate/scorer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "core/event.h"
#include "core/hash.h"
#include "core/progress.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

constexpr uint64_t kNoText = ~uint64_t{0};  // in place of a text's length: logits were not finite

std::function<void(ParameterSet&)> checkpoint_parameters(const CheckpointModel& model, int rank,
                                                         const HostShare& share) {
  return [directory = model.directory, share, rank](ParameterSet& set) {
    Log log(rank);
    load_parameters(directory, set, {.threads = share.threads, .log = rank == 0 ? &log : nullptr});
  };
}

// The manifest identifies a step, as it has the hashes of its files.
std::string identity_of(const CheckpointModel& model) {
  try {
    return to_hex(xxh3_128(read_file(model.directory + "/" + kManifestName, kLargestManifest)));
  } catch (const Error& error) {
    rethrow_unless_step_fault(model.directory, error);
    throw;
  }
}

std::string name_of_request(const ScorerOptions& options, size_t number) {
  return options.name_of ? options.name_of(number) : "request " + std::to_string(number);
}

std::string to_digits(const std::string& text) {
  std::string digits = "x";  // never empty
  for (const char byte : text) {
    constexpr const char* kDigits = "0123456789abcdef";
    digits += {kDigits[static_cast<uint8_t>(byte) >> 4], kDigits[static_cast<uint8_t>(byte) & 15]};
  }
  return digits;
}

// The inverse; unset if the text is malformed.
std::optional<std::string> from_digits(const std::string& digits) {
  if (digits.size() % 2 != 1 || digits[0] != 'x' ||
      digits.find_first_not_of("0123456789abcdef", 1) != std::string::npos) {
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 1; i < digits.size(); i += 2) text += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return text;
}

// Ranks that hold the whole model and decode prompts together: with a checkpoint the tp ranks of each stage, with live
// weights all stages together. Prompts are dealt to the groups in turn.
struct DecodingGroup {
  size_t number, of;
  bool tells;  // this rank reports for its group
};
DecodingGroup decoding_group(const ParallelLayout& layout, int rank, bool is_live) {
  const Coordinates at = layout.coordinates(rank);
  const int models = is_live ? 1 : layout.pp;
  return {static_cast<size_t>(at.pp % models * layout.dp + at.dp), static_cast<size_t>(models * layout.dp),
          at.tp == 0 && at.pp < models};
}

// Texts as ranks exchange them: the request's number, the text's length in bytes, the text.
void append_text(uint64_t request, const std::optional<std::string>& text, std::string& bytes) {
  for (const uint64_t number : {request, text ? text->size() : kNoText}) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  bytes += text.value_or("");
}

void read_texts(std::string_view bytes, std::vector<Answer>& answers) {
  const auto take = [&](size_t count) {
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return taken;
  };
  const auto take_number = [&] {
    uint64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  };
  while (!bytes.empty()) {
    Answer& answer = answers[take_number()];
    const uint64_t count = take_number();
    if (count == kNoText) {
      answer.log_likelihood = std::numeric_limits<double>::quiet_NaN();
    } else {
      answer.text = take(count);
    }
  }
}

}  // namespace

Scorer::Scorer(const CheckpointModel& model, HostCommunicator& world, const HostShare& share)
    : config_(model.config),
      tokenizer_(tokenizer_of(model)),
      identity_(identity_of(model)),
      world_(world),
      share_(share),
      fill_(checkpoint_parameters(model, world.rank(), share)),
      scorer_(config_, fill_, identity_, world, share) {}

Scorer::Scorer(const RunConfig& config, Engine& engine, const StoredTokenizer& tokenizer, std::string identity,
               HostCommunicator& world, const HostShare& share)
    : config_(config),
      tokenizer_(tokenizer_for_vocab(config.model.vocab, tokenizer, "the run's tokenizer")),
      identity_(std::move(identity)),
      world_(world),
      share_(share),
      live_(&engine),
      scorer_(config_, engine, identity_, world) {}

RequestTokens tokens_of(const std::vector<Request>& requests, const Tokenizer& tokenizer, const ScorerOptions& options,
                        int64_t max_length) {
  std::optional<Progress> progress;
  if (options.progress) progress.emplace("tokens", 0, "bytes");
  const TokenRules rules =
      token_rules(tokenizer, options.beginning, max_length, options.boundary_fallback, progress ? &*progress : nullptr);
  RequestTokens tokens;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].kind == RequestKind::generate) {
      PromptTokens prompt = prompt_tokens(requests[i], rules, name_of_request(options, i));
      if (prompt.lost > 0) tokens.shortened.push_back(i);
      tokens.prompts.push_back({i, std::move(prompt.input)});
      continue;
    }
    for (const ScoreTokens& pass : score_tokens(requests[i], rules, name_of_request(options, i))) {
      if (pass.lost > 0) tokens.shortened.push_back(i);
      tokens.planner.add(pass);
      tokens.request_of_pass.push_back(i);
    }
  }
  return tokens;
}

void Scorer::plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads, bool generates,
                       Ledger& planned) {
  TokenScorer::plan_live(config, layout, rank, threads, planned);
  if (!generates) return;
  Decoder::plan_live(config, layout, rank, threads, config.train.sequence_length, GenerateOptions{}.chunk, planned);
}

void Scorer::make_decoder() {
  if (live_decoder_ != nullptr) return;
  const Groups& groups = live_->groups();
  if (groups.layout.pp > 1) stages_ = world_.split(groups.layout.group(world_.rank(), Axis::pp), "decoding stages");
  live_decoder_ =
      std::make_unique<Decoder>(config_, *live_, stages_.get(), config_.train.sequence_length, GenerateOptions{}.chunk);
}

RequestTokens Scorer::tokens(const std::vector<Request>& requests, const ScorerOptions& options) {
  RequestTokens tokens;
  run_on_all_ranks(world_, [&] {
    const int64_t max_length = max_length_of(options, config_);
    if (live_ != nullptr && max_length > config_.train.sequence_length) {
      throw_bad_input("max_length ", max_length, " is more than the ", config_.train.sequence_length,
                      " tokens of train.sequence_length, the limit during training; evaluate a saved step instead");
    }
    ScorerOptions own = options;
    own.progress = options.progress && world_.rank() == 0;
    tokens = tokens_of(requests, *tokenizer_, own, max_length);
  });
  return tokens;
}

std::vector<Answer> Scorer::answer(const std::vector<Request>& requests, const ScorerOptions& options) {
  return answer(requests, tokens(requests, options), options);
}

std::vector<Answer> Scorer::answer(const std::vector<Request>& requests, const RequestTokens& tokens,
                                   const ScorerOptions& options) {
  std::optional<ScoreJournal> journal;
  if (!options.journal.empty()) journal.emplace(options.journal, world_);
  ScoreJournal* const kept = journal ? &*journal : nullptr;
  const std::vector<PassScore> scores = scorer_.score(tokens.planner, {.token_budget = options.token_budget,
                                                                       .journal = kept,
                                                                       .progress = options.progress,
                                                                       .each_batch = options.each_batch,
                                                                       .keep_going = options.keep_going});
  if (scores.empty() && tokens.planner.passes() > 0) return {};
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) answers[i].greedy = requests[i].kind != RequestKind::generate;
  for (size_t pass = 0; pass < scores.size(); ++pass) {
    Answer& answer = answers[tokens.request_of_pass[pass]];
    answer.log_likelihood += scores[pass].log_likelihood;
    answer.greedy = answer.greedy && scores[pass].greedy;
  }
  if (!generate(requests, tokens.prompts, options, kept, answers)) return {};
  return answers;
}

std::string Scorer::key_of(const Prompt& prompt, const GenerationRules& rules) const {
  HashStream hash;
  const auto add = [&hash](const std::string& text) {
    const uint64_t bytes = text.size();
    hash.update(&bytes, sizeof bytes);
    hash.update(text.data(), text.size());
  };
  add(identity_);
  add("generate 2");  // version of the generation rules: answers of earlier versions are not used
  add(to_string(config_.train.precision));
  add(std::to_string(rules.most_tokens));
  for (const std::string& stop : rules.until) add(stop);
  hash.update(prompt.tokens.data(), prompt.tokens.size() * sizeof(int32_t));
  return to_hex(hash.digest_128());
}

std::optional<std::string> Scorer::continued(Decoder& decoder, const Prompt& prompt,
                                             const GenerationRules& rules) const {
  std::vector<std::string> stops = rules.until;
  stops.push_back(tokenizer_->piece(tokenizer_->end_of_document()));  // if it is spelled out, it ends the text too
  std::string text;
  const auto ends = [&](int32_t token) {
    text += tokenizer_->text_of(token);
    return std::ranges::any_of(
        stops, [&](const std::string& stop) { return !stop.empty() && text.find(stop) != std::string::npos; });
  };
  decoder.restart();
  try {
    const GenerateOptions options{
        .tokens = rules.most_tokens, .separates_documents = false /* as in scores */, .ends_with = ends};
    continue_tokens(decoder, prompt.tokens, options, tokenizer_->vocab_size(), tokenizer_->end_of_document(), {});
  } catch (const NonFiniteLogits&) {  // on all ranks that decode together; others continue
    return std::nullopt;
  }
  for (const std::string& stop : stops) {
    if (!stop.empty()) text.resize(std::min(text.size(), text.find(stop)));
  }
  return text;
}

// The longest first: it determines the decoder's capacity.
std::vector<Scorer::Generation> Scorer::not_in_journal(const std::vector<Request>& requests,
                                                       const std::vector<Prompt>& prompts, const ScoreJournal* journal,
                                                       std::vector<Answer>& answers) const {
  std::vector<Generation> left;
  for (const Prompt& prompt : prompts) {
    const GenerationRules& rules = requests[prompt.request].generation;
    std::string key = journal != nullptr ? key_of(prompt, rules) : "";
    const std::string* digits = journal != nullptr ? journal->find(key) : nullptr;
    const std::optional<std::string> text = digits != nullptr ? from_digits(*digits) : std::nullopt;
    if (text) {
      answers[prompt.request].text = *text;
    } else {
      left.push_back({&prompt, &rules, std::move(key)});
    }
  }
  std::ranges::stable_sort(left, std::ranges::greater{}, &Generation::length);
  return left;
}

bool Scorer::generate(const std::vector<Request>& requests, const std::vector<Prompt>& prompts,
                      const ScorerOptions& options, ScoreJournal* journal, std::vector<Answer>& answers) {
  const std::vector<Generation> left = not_in_journal(requests, prompts, journal, answers);
  if (left.empty()) return true;
  const ParallelLayout layout = make_layout(config_.parallel, world_.size());
  const DecodingGroup group = decoding_group(layout, world_.rank(), live_ != nullptr);
  std::unique_ptr<HostCommunicator> ranks;
  std::unique_ptr<Decoder> of_checkpoint;
  if (live_ == nullptr) {
    scorer_.release();
    ranks = world_.split(layout.group(world_.rank(), Axis::tp), "decoding");
    if (group.number < left.size()) {
      of_checkpoint = std::make_unique<Decoder>(config_, fill_, *ranks, share_, left[group.number].length(),
                                                GenerateOptions{}.chunk);
    }
  } else {
    make_decoder();
    live_decoder_->weights_changed();
  }
  Decoder* const decoder = live_ == nullptr ? of_checkpoint.get() : live_decoder_.get();
  const size_t rounds = (left.size() + group.of - 1) / group.of;  // each group takes one prompt per round
  std::optional<Progress> progress;
  if (options.progress && world_.rank() == 0) progress.emplace("generate", rounds, "prompts");
  std::string own;
  for (size_t round = 0; round < rounds; ++round) {
    if (options.keep_going && !options.keep_going()) return false;
    const size_t number = round * group.of + group.number;
    if (number >= left.size()) continue;
    if (options.each_batch) options.each_batch();
    const Generation& next = left[number];
    const std::optional<std::string> text = continued(*decoder, *next.prompt, *next.rules);
    if (progress) progress->advance(1);
    if (!group.tells) continue;
    if (journal != nullptr && text) journal->append(next.key, to_digits(*text));
    append_text(next.prompt->request, text, own);
  }
  read_texts(joined_texts(world_, own), answers);
  return true;
}

}  // namespace shiftron
