// Requests to tokens, scores to answers, and continuations of prompts dealt to groups of ranks.
#include "evaluate/scorer.h"

#include <algorithm>
#include <cstring>
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

std::function<void(ParameterSet&)> checkpoint_parameters(const CheckpointModel& model, int rank,
                                                         const HostShare& share) {
  return [directory = model.directory, share, rank](ParameterSet& set) {
    Log log(rank);
    load_parameters(directory, set, {.threads = share.threads, .log = rank == 0 ? &log : nullptr});
  };
}

// A step is what its manifest says.
std::string identity_of(const CheckpointModel& model) {
  return to_hex(xxh3_128(read_file(model.directory + "/" + kManifestName)));
}

// What products read, as it is when it is called; the same pieces of the model.
std::function<void(ParameterSet&)> live_weights(Engine& engine) {
  return [&engine](ParameterSet& set) {
    engine.parameters().await_weights(engine.stream());
    for (const auto& parameter : set.parameters()) {
      const Parameter* live = engine.parameters().find(parameter->spec.name);
      CHECK(live != nullptr && live->box == parameter->box, parameter->spec.name, " lies elsewhere in training");
      copy(engine.stream(), live->weight, parameter->weight);
    }
    finish(engine.stream());
  };
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

// The inverse; unset where it is no such text.
std::optional<std::string> from_digits(const std::string& digits) {
  if (digits.size() % 2 != 1 || digits[0] != 'x' ||
      digits.find_first_not_of("0123456789abcdef", 1) != std::string::npos) {
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 1; i < digits.size(); i += 2) text += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return text;
}

}  // namespace

Scorer::Scorer(const CheckpointModel& model, HostCommunicator& world, const HostShare& share)
    : config_(model.config),
      tokenizer_(model.content.tokenizer_model, model.directory),
      identity_(identity_of(model)),
      world_(world),
      share_(share),
      fill_(checkpoint_parameters(model, world.rank(), share)),
      live_(false),
      scorer_(config_, fill_, identity_, world, share) {}

Scorer::Scorer(const RunConfig& config, Engine& engine, const std::string& tokenizer_model, std::string identity,
               HostCommunicator& world, const HostShare& share)
    : config_(config),
      tokenizer_(tokenizer_model, "the run's tokenizer"),
      identity_(std::move(identity)),
      world_(world),
      share_(share),
      fill_(live_weights(engine)),
      live_(true),
      scorer_(config_, engine, identity_, world) {}

std::vector<Answer> Scorer::answer(const std::vector<Request>& requests, const ScorerOptions& options) {
  const int64_t max_length = options.max_length > 0 ? options.max_length : config_.train.sequence_length;
  ScorePlanner planner;
  std::vector<size_t> request_of_pass;
  std::vector<Prompt> prompts;
  told_by_first(world_, [&] {
    if (live_ && max_length > config_.train.sequence_length) {
      throw_bad_input("max_length ", max_length, " is more than the ", config_.train.sequence_length,
                      " tokens of train.sequence_length, which is all that a run evaluates on its way; evaluate a "
                      "saved step instead");
    }
    const TokenRules rules = token_rules(tokenizer_, options.beginning, max_length, options.boundary_fallback);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].kind == RequestKind::generate) {
        prompts.push_back({i, prompt_tokens(requests[i], rules, name_of_request(options, i))});
        continue;
      }
      for (const ScoreTokens& pass : score_tokens(requests[i], rules, name_of_request(options, i))) {
        planner.add(pass);
        request_of_pass.push_back(i);
      }
    }
    if (live_ && !prompts.empty() && config_.parallel.pp > 1) {
      throw_bad_input(name_of_request(options, prompts[0].request),
                      " is to be continued: inside of training that needs parallel.pp=1, not ", config_.parallel.pp,
                      "; evaluate a saved step instead");
    }
  });
  std::optional<ScoreJournal> journal;
  if (!options.journal.empty()) journal.emplace(options.journal, world_);
  ScoreJournal* const kept = journal ? &*journal : nullptr;
  const std::vector<PassScore> scores = scorer_.score(planner, {.token_budget = options.token_budget,
                                                                .journal = kept,
                                                                .progress = options.progress,
                                                                .each_batch = options.each_batch});
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) answers[i].greedy = requests[i].kind != RequestKind::generate;
  for (size_t pass = 0; pass < scores.size(); ++pass) {
    Answer& answer = answers[request_of_pass[pass]];
    answer.log_likelihood += scores[pass].log_likelihood;
    answer.greedy = answer.greedy && scores[pass].greedy;
  }
  generate(requests, prompts, options, kept, answers);
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
  add("generate");
  add(std::to_string(rules.most_tokens));
  for (const std::string& stop : rules.until) add(stop);
  hash.update(prompt.tokens.data(), prompt.tokens.size() * sizeof(int32_t));
  return to_hex(hash.digest_128());
}

std::string Scorer::continued(Decoder& decoder, const Prompt& prompt, const GenerationRules& rules) const {
  std::vector<std::string> stops = rules.until;
  stops.push_back(tokenizer_.piece(tokenizer_.end_of_document()));  // spelled out, it ends a text too
  std::string text;
  const auto ends = [&](int32_t token) {
    text += tokenizer_.text_of(token);
    return std::ranges::any_of(
        stops, [&](const std::string& stop) { return !stop.empty() && text.find(stop) != std::string::npos; });
  };
  decoder.restart();
  continue_tokens(decoder, prompt.tokens, {.tokens = rules.most_tokens, .ends_with = ends}, tokenizer_.vocab_size(),
                  tokenizer_.end_of_document(), {});
  for (const std::string& stop : stops) {
    if (!stop.empty()) text.resize(std::min(text.size(), text.find(stop)));
  }
  return text;
}

void Scorer::generate(const std::vector<Request>& requests, const std::vector<Prompt>& prompts,
                      const ScorerOptions& options, ScoreJournal* journal, std::vector<Answer>& answers) {
  if (prompts.empty()) return;
  const auto rules_of = [&](const Prompt& prompt) -> const GenerationRules& {
    return requests[prompt.request].generation;
  };
  std::vector<const Prompt*> todo;
  for (const Prompt& prompt : prompts) {
    const std::string* known = journal != nullptr ? journal->find(key_of(prompt, rules_of(prompt))) : nullptr;
    const std::optional<std::string> text = known != nullptr ? from_digits(*known) : std::nullopt;
    if (text) {
      answers[prompt.request].text = *text;
    } else {
      todo.push_back(&prompt);
    }
  }
  if (todo.empty()) return;
  // The longest first, in turn to groups of tp ranks, each of which holds the whole model.
  const auto length_of = [&](const Prompt* prompt) {
    return static_cast<int64_t>(prompt->tokens.size()) + rules_of(*prompt).most_tokens;
  };
  std::ranges::stable_sort(todo, std::ranges::greater{}, length_of);
  const ParallelLayout layout = make_layout(config_.parallel, world_.size());
  const Coordinates at = layout.coordinates(world_.rank());
  const auto group = static_cast<size_t>(at.pp * layout.dp + at.dp),
             groups = static_cast<size_t>(layout.pp * layout.dp);
  scorer_.release();
  std::string own;
  const auto put = [&own](uint64_t number) { own.append(reinterpret_cast<const char*>(&number), sizeof number); };
  const std::unique_ptr<HostCommunicator> decoders = world_.split(layout.group(world_.rank(), Axis::tp), "decoding");
  if (group < todo.size()) {
    Decoder decoder(config_, fill_, *decoders, share_, length_of(todo[group]), GenerateOptions{}.chunk);
    std::optional<Progress> progress;
    if (options.progress && world_.rank() == 0)
      progress.emplace("generate", (todo.size() + groups - 1) / groups, "prompts");
    for (size_t i = group; i < todo.size(); i += groups) {
      if (options.each_batch) options.each_batch();
      const Prompt& prompt = *todo[i];
      const std::string text = continued(decoder, prompt, rules_of(prompt));
      if (progress) progress->advance(1);
      if (at.tp != 0) continue;
      if (journal != nullptr) journal->append(key_of(prompt, rules_of(prompt)), to_digits(text));
      put(prompt.request);
      put(text.size());
      own += text;
    }
  }
  std::string all;
  for (const std::string& part : world_.gather_text(own, 0)) all += part;
  all = world_.broadcast_text(all, 0);
  size_t next = 0;
  const auto take = [&] {
    uint64_t number = 0;
    std::memcpy(&number, all.data() + next, sizeof number);
    next += sizeof number;
    return number;
  };
  while (next < all.size()) {
    const uint64_t request = take(), bytes = take();
    answers[request].text = all.substr(next, bytes);
    next += bytes;
  }
}

}  // namespace shiftron
