// Finds the best cut from left to right (Viterbi).
#include "tokenizer/hugging_face/unigram_model.h"

#include <algorithm>
#include <limits>

#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {
namespace {

constexpr double kUnknownPenalty = 10;  // of the package, below the lowest score

}  // namespace

struct UnigramModel::Work : Scratch {
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;  // of the piece that ends here; SIZE_MAX: no way leads here
    int32_t id = 0;
  };
  std::vector<Best> best{};  // per byte of the word, and its end
  std::vector<size_t> ends{};
};

UnigramModel::UnigramModel(const JsonPart& part, const TokenModelOptions& options)
    : falls_back_(part["byte_fallback"].boolean_or(false)) {
  const JsonPart vocabulary = part["vocab"];
  if (options.gets_bytes) part.refuse("a unigram model of bytes is not supported");
  if (!vocabulary.value().is_array()) vocabulary.refuse("is not a list");
  const auto count = static_cast<int64_t>(vocabulary.value().size());
  if (count > kMostVocab) vocabulary.refuse("has ", count, " pieces; at most ", kMostVocab, " are supported");
  unknown_ = static_cast<int32_t>(part["unk_id"].integer(0, count - 1));
  lowest_ = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string, int32_t>> pieces;
  for (const JsonPart& entry : vocabulary.list()) {
    const auto values = entry.list();
    if (values.size() != 2) entry.refuse("is not a piece with its score");
    const auto id = static_cast<int32_t>(scores_.size());
    const std::string piece = values[0].text();
    scores_.push_back(values[1].real());
    lowest_ = std::min(lowest_, scores_.back());
    add_piece(piece, id, entry);
    if (!piece.empty() && !options.hidden.contains(piece)) pieces.emplace_back(piece, id);
  }
  build_tree(std::move(pieces));
  byte_ids_.fill(-1);
  if (falls_back_) byte_ids_ = fallback_byte_ids();
}

void UnigramModel::build_tree(std::vector<std::pair<std::string, int32_t>> pieces) {
  // The last of equal pieces wins, as there.
  std::ranges::stable_sort(pieces, {}, &std::pair<std::string, int32_t>::first);
  struct Range {
    uint32_t node;
    size_t begin, end;  // pieces below it
    size_t depth;
  };
  std::vector<Range> open = {{0, 0, pieces.size(), 0}};
  nodes_.emplace_back();
  for (size_t next = 0; next < open.size(); ++next) {
    auto [node, begin, end, depth] = open[next];
    while (begin < end && pieces[begin].first.size() == depth) nodes_[node].piece = pieces[begin++].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = pieces[begin].first[depth];
      size_t last = begin;
      while (last < end && pieces[last].first[depth] == byte) ++last;
      open.push_back({static_cast<uint32_t>(nodes_.size()), begin, last, depth + 1});
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ++nodes_[node].children;
      begin = last;
    }
  }
}

const UnigramModel::Node* UnigramModel::child_of(const Node& node, char byte) const {
  const auto wanted = static_cast<uint8_t>(byte);
  const Node* const begin = nodes_.data() + node.first_child;
  const Node* const end = begin + node.children;
  const Node* const found = std::lower_bound(begin, end, wanted, [](const Node& a, uint8_t b) { return a.byte < b; });
  return found != end && found->byte == wanted ? found : nullptr;
}

std::unique_ptr<TokenModel::Scratch> UnigramModel::make_scratch() const {
  return std::make_unique<Work>();
}

void UnigramModel::encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const {
  Work& work = static_cast<Work&>(scratch);
  work.best.assign(word.size() + 1, {});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    Work::Best& best = work.best[end];
    const double sum = score + work.best[begin].score;
    if (best.begin == SIZE_MAX || sum > best.score) best = {sum, begin, id};
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = first_code_point(word.substr(at)).bytes;
    bool has_character = false;
    const Node* node = nodes_.data();
    for (size_t end = at; end < word.size();) {
      node = child_of(*node, word[end++]);
      if (node == nullptr) break;
      if (node->piece < 0) continue;
      offer(at, end, scores_[static_cast<size_t>(node->piece)], node->piece);
      has_character = has_character || end == at + length;
    }
    if (!has_character) offer(at, at + length, lowest_ - kUnknownPenalty, unknown_);
    at += length;
  }
  work.ends.clear();
  for (size_t end = word.size(); end > 0; end = work.best[end].begin) work.ends.push_back(end);
  size_t begin = 0, unknown_begin = 0;
  for (size_t i = work.ends.size(); i-- > 0;) {
    const size_t end = work.ends[i];
    const int32_t id = work.best[end].id;
    if (id != unknown_) {
      if (unknown_begin < begin) add_unknown(word.substr(unknown_begin, begin - unknown_begin), ids);
      ids.push_back(id);
      unknown_begin = end;
    }
    begin = end;
  }
  if (unknown_begin < word.size()) add_unknown(word.substr(unknown_begin), ids);
}

// A run of characters without a piece, or the name of the unknown token itself.
void UnigramModel::add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const auto found = ids_.find(text);
  if (found != ids_.end()) {
    ids.push_back(found->second);
    return;
  }
  const auto byte_id = [this](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (falls_back_ && std::ranges::all_of(text, [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(byte_id(byte));
  } else {
    ids.push_back(unknown_);
  }
}

}  // namespace shiftron
