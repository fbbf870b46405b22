// All words lie in one list of symbols. Each pair keeps the places where it occurs, so a merge visits only these.
#include "tokenizer/byte_pair_training.h"

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <queue>

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/shared_tasks.h"
#include "tokenizer/hugging_face/byte_level.h"
#include "tokenizer/hugging_face/pre_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json pre_tokenizer_json() {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

struct LearnedMerge {
  int32_t left, right;
};

class MergeLearner {
 public:
  // pieces: of the tokens so far, by id; `byte_ids`: of single bytes.
  MergeLearner(const WordCounts& words, std::vector<std::string> pieces, const std::array<int32_t, 256>& byte_ids)
      : pieces_(std::move(pieces)) {
    for (size_t id = 0; id < pieces_.size(); ++id) ids_.emplace(pieces_[id], static_cast<int32_t>(id));
    special_tokens_ = static_cast<int32_t>(pieces_.size()) - 256;
    read(words, byte_ids);
  }

  // Until there are `vocab` tokens or no pair is frequent enough.
  void learn(int64_t vocab) {
    for (const auto& [key, pair] : pairs_) push(key, pair.count);
    while (static_cast<int64_t>(pieces_.size()) < vocab && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      if (found == pairs_.end()) continue;
      if (found->second.count != best.count) {  // it has lost places since
        push(best.key, found->second.count);
        continue;
      }
      std::vector<uint32_t> places = std::move(found->second.places);
      pairs_.erase(found);
      merge(best.key, std::move(places));
    }
  }

  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<LearnedMerge>& merges() const { return merges_; }

 private:
  static constexpr int32_t kGone = -1, kEdge = -2;  // symbols; kEdge: between words
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> places{};  // of left symbols; some may be out of date
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  void push(uint64_t key, int64_t count) {
    if (count >= kLeastPairs) queue_.push({count, key});
  }

  void read(const WordCounts& words, const std::array<int32_t, 256>& byte_ids) {
    size_t total = 1;
    for (const auto& [word, count] : words) total += word.size() + 1;
    if (total > UINT32_MAX)
      throw_bad_input("the text has too many distinct words (", total, " bytes); lower --sample-bytes");
    symbols_.reserve(total);
    word_ends_.reserve(words.size());
    counts_.reserve(words.size());
    symbols_.push_back(kEdge);
    for (const auto& [word, count] : words) {
      for (const char byte : word) symbols_.push_back(byte_ids[static_cast<uint8_t>(byte)]);
      word_ends_.push_back(static_cast<uint32_t>(symbols_.size()));
      counts_.push_back(static_cast<int64_t>(count));
      symbols_.push_back(kEdge);
    }
    next_.resize(symbols_.size());
    previous_.resize(symbols_.size());
    std::iota(next_.begin(), next_.end(), 1U);
    for (uint32_t at = 1; at < symbols_.size(); ++at) previous_[at] = at - 1;
    size_t word = 0;
    for (uint32_t at = 1; at + 1 < symbols_.size(); ++at) {
      if (symbols_[at] == kEdge) {
        ++word;
      } else if (symbols_[at + 1] != kEdge) {
        add_place(symbols_[at], symbols_[at + 1], at, counts_[word]);
      }
    }
  }

  int64_t count_at(uint32_t place) const {
    const auto end = std::ranges::upper_bound(word_ends_, place);
    return counts_[static_cast<size_t>(end - word_ends_.begin())];
  }

  void add_place(int32_t left, int32_t right, uint32_t place, int64_t count) {
    Pair& pair = pairs_[key_of(left, right)];
    pair.count += count;
    pair.places.push_back(place);
  }

  void drop_place(int32_t left, int32_t right, int64_t count) {
    const auto found = pairs_.find(key_of(left, right));
    if (found != pairs_.end() && (found->second.count -= count) == 0) pairs_.erase(found);
  }

  // The id of the pair's token; -1: the pair would become a special token.
  int32_t id_of(int32_t left, int32_t right) {
    const std::string piece = pieces_[static_cast<size_t>(left)] + pieces_[static_cast<size_t>(right)];
    const auto [found, is_new] = ids_.emplace(piece, static_cast<int32_t>(pieces_.size()));
    if (is_new) pieces_.push_back(piece);
    return found->second < special_tokens_ ? -1 : found->second;
  }

  void merge(uint64_t key, std::vector<uint32_t> places) {
    const auto left = static_cast<int32_t>(key >> 32), right = static_cast<int32_t>(key & UINT32_MAX);
    const int32_t id = id_of(left, right);
    if (id < 0) return;
    merges_.push_back({left, right});
    std::ranges::sort(places);  // of overlapping ones, the first is merged
    std::vector<uint64_t> grown;
    const auto grow = [&](int32_t first, int32_t second, uint32_t place, int64_t count) {
      add_place(first, second, place, count);
      grown.push_back(key_of(first, second));
    };
    for (const uint32_t at : places) {
      const uint32_t other = next_[at];
      if (symbols_[at] != left || symbols_[other] != right) continue;
      const int64_t count = count_at(at);
      const uint32_t before = previous_[at], after = next_[other];
      if (symbols_[before] != kEdge) drop_place(symbols_[before], left, count);
      if (symbols_[after] != kEdge) drop_place(right, symbols_[after], count);
      symbols_[at] = id;
      symbols_[other] = kGone;
      next_[at] = after;
      previous_[after] = at;
      if (symbols_[before] != kEdge) grow(symbols_[before], id, before, count);
      if (symbols_[after] != kEdge) grow(id, symbols_[after], at, count);
    }
    std::ranges::sort(grown);
    const auto repeated = std::ranges::unique(grown);
    grown.erase(repeated.begin(), repeated.end());
    for (const uint64_t one : grown) {
      const auto found = pairs_.find(one);
      if (found != pairs_.end()) push(one, found->second.count);
    }
  }

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t special_tokens_ = 0;  // their ids are below it
  std::vector<LearnedMerge> merges_;
  std::vector<int32_t> symbols_;
  std::vector<uint32_t> next_, previous_;  // of each symbol
  std::vector<uint32_t> word_ends_;        // ascending
  std::vector<int64_t> counts_;            // of each word
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
};

void check_special_tokens(const std::vector<std::string>& tokens) {
  const ByteLevelAlphabet alphabet;
  for (auto token = tokens.begin(); token != tokens.end(); ++token) {
    const auto bytes = alphabet.decoded(*token);
    if (token->empty() || (bytes && bytes->size() == 1)) {
      throw_bad_input("special token \"", printable(*token), "\" needs at least two characters");
    }
    if (!is_utf8(*token)) throw_bad_input("special token \"", printable(*token), "\" is not UTF-8");
    if (std::find(tokens.begin(), token, *token) != token) {
      throw_bad_input("special token \"", printable(*token), "\" is given twice; name it once");
    }
  }
}

Json added_tokens_json(const std::vector<std::string>& tokens) {
  Json added = Json::array();
  for (const std::string& token : tokens) {
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

std::string file_of(const MergeLearner& learned, const std::vector<std::string>& special_tokens) {
  Json::object_t vocab;
  Json merges = Json::array();
  const std::vector<std::string>& pieces = learned.pieces();
  // Its own functions would look for each key among all others.
  auto& entries = static_cast<Json::object_t::Container&>(vocab);
  for (size_t id = 0; id < pieces.size(); ++id) entries.emplace_back(pieces[id], id);
  for (const LearnedMerge& merge : learned.merges()) {
    merges.push_back({pieces[static_cast<size_t>(merge.left)], pieces[static_cast<size_t>(merge.right)]});
  }
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", true},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges)}};
  const Json decoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens_json(special_tokens)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer_json()},
                     {"post_processor", nullptr},
                     {"decoder", decoder},
                     {"model", model}};
  return file.dump(1) + "\n";
}

}  // namespace

WordCounts count_words(const std::vector<std::string>& texts, int threads) {
  const nlohmann::json pre_tokenizer_file = pre_tokenizer_json();
  const auto pre_tokenizer = read_pre_tokenizer(JsonPart(pre_tokenizer_file, "the trainer"));
  pre_tokenizer->give_bytes();
  struct Part {
    WordCounts counts{};
    std::exception_ptr fault{};
  };
  std::vector<Part> parts(static_cast<size_t>(std::max(1, threads)));
  const auto count_part = [&](size_t part) {
    WordCounts& counts = parts[part].counts;
    const TakePiece take = [&](const TextPiece& word) {
      const auto found = counts.find(word.text);
      if (found != counts.end()) {
        ++found->second;
      } else {
        counts.emplace(word.text, 1);
      }
    };
    for (size_t i = part; i < texts.size(); i += parts.size()) {
      if (!texts[i].empty()) pre_tokenizer->split({texts[i], true, false}, take);
    }
  };
  share_tasks(static_cast<int64_t>(parts.size()), threads, [&](int64_t task) {
    try {
      count_part(static_cast<size_t>(task));
    } catch (...) {
      parts[static_cast<size_t>(task)].fault = std::current_exception();
    }
  });
  for (Part& part : parts) {
    if (part.fault) std::rethrow_exception(part.fault);
    if (&part == parts.data()) continue;
    for (const auto& [word, count] : part.counts) parts[0].counts[word] += count;
    part.counts.clear();
  }
  return std::move(parts[0].counts);
}

std::string train_byte_pairs(const WordCounts& words, const BytePairTraining& training) {
  check_special_tokens(training.special_tokens);
  std::vector<std::string> pieces = training.special_tokens;
  const auto fixed = static_cast<int64_t>(pieces.size()) + 256;
  if (training.vocab < fixed) {
    throw_bad_input("vocab ", training.vocab, ": must be at least ", fixed, " (256 bytes and ", pieces.size(),
                    " special tokens)");
  }
  const ByteLevelAlphabet alphabet;
  std::vector<std::pair<std::string, size_t>> bytes;  // of UTF-8, so strings are in the order of characters
  for (size_t byte = 0; byte < 256; ++byte) {
    bytes.emplace_back("", byte);
    alphabet.append_encoded(bytes.back().first, std::string(1, static_cast<char>(byte)));
  }
  std::ranges::sort(bytes);
  std::array<int32_t, 256> byte_ids{};
  for (const auto& [piece, byte] : bytes) {
    byte_ids[byte] = static_cast<int32_t>(pieces.size());
    pieces.push_back(piece);
  }
  MergeLearner learner(words, std::move(pieces), byte_ids);
  learner.learn(training.vocab);
  const auto made = static_cast<int64_t>(learner.pieces().size());
  if (made < training.vocab) {
    throw_bad_input("vocab ", training.vocab, " is larger than this text supports: at most ", made,
                    ", because no other pair of tokens occurs ", kLeastPairs,
                    " times; lower --vocab or give more text");
  }
  return file_of(learner, training.special_tokens);
}

}  // namespace shiftron
