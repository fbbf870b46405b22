// Short words are searched for the best pair again and again; long ones keep their pairs in a heap.
#include "tokenizer/hugging_face/byte_pair_model.h"

#include <algorithm>

#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {
namespace {

constexpr size_t kFew = 48;  // symbols
using Merge = MergeTable::Merge;

void refuse_if_set(const JsonPart& part, const char* key) {
  if (!part[key].text_or("").empty()) part[key].refuse("is not supported");
}

}  // namespace

struct BytePairModel::Work : Scratch {
  struct Pair {
    uint32_t rank;
    uint32_t at;
    int32_t id;
    // Of a heap whose top is the lowest rank, and of those the leftmost.
    bool operator<(const Pair& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::vector<int32_t> symbols{};
  std::vector<Merge> merges{};  // of each symbol with the next one
  std::vector<Pair> heap{};
  std::vector<uint32_t> next{}, previous{};
};

BytePairModel::BytePairModel(const JsonPart& part, const TokenModelOptions& options)
    : gets_bytes_(options.gets_bytes),
      falls_back_(part["byte_fallback"].boolean_or(false)),
      fuses_unknown_(part["fuse_unk"].boolean_or(false)) {
  refuse_if_set(part, "continuing_subword_prefix");
  refuse_if_set(part, "end_of_word_suffix");
  if (!part["dropout"].is_null() && part["dropout"].real() != 0) {
    part["dropout"].refuse("is not supported, because it makes ids random");
  }
  read_vocabulary(part, options);
  read_merges(part["merges"], options);
}

void BytePairModel::read_vocabulary(const JsonPart& part, const TokenModelOptions& options) {
  const JsonPart vocabulary = part["vocab"];
  if (!vocabulary.value().is_object()) vocabulary.refuse("is not an object");
  ids_.reserve(vocabulary.value().size());
  const bool ignores_merges = part["ignore_merges"].boolean_or(false);
  byte_ids_.fill(-1);
  for (const auto& [piece, value] : vocabulary.value().items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= uint64_t{kMostVocab}) {
      vocabulary.refuse("the id of \"", printable(piece), "\" is ", value.dump(), "; it must be between 0 and ",
                        kMostVocab - 1);
    }
    const auto id = value.get<int32_t>();
    add_piece(piece, id, vocabulary);
    if (piece.empty() || options.hidden.contains(piece)) continue;
    if (gets_bytes_) {
      const auto bytes = alphabet_.decoded(piece);
      if (!bytes) continue;  // no text becomes it
      if (bytes->size() == 1) byte_ids_[static_cast<uint8_t>(bytes->front())] = id;
      if (ignores_merges) words_.emplace(*bytes, id);
    } else {
      const CodePoint first = first_code_point(piece);
      if (first.bytes == piece.size()) set_character(first.value, id);
      if (ignores_merges) words_.emplace(piece, id);
    }
  }
  if (falls_back_) fallback_ids_ = fallback_byte_ids();
  if (falls_back_ && !gets_bytes_) byte_ids_ = fallback_ids_;
  has_unknown_ = !part["unk_token"].is_null();
  if (has_unknown_) {
    const auto found = ids_.find(part["unk_token"].text());
    if (found == ids_.end()) part["unk_token"].refuse("is not in the vocabulary");
    unknown_ = found->second;
  }
}

void BytePairModel::read_merges(const JsonPart& part, const TokenModelOptions& options) {
  if (!part.value().is_array()) part.refuse("is not a list");
  const nlohmann::json& list = part.value();
  merges_.emplace(list.size());
  uint32_t rank = 0;
  for (const nlohmann::json& merge : list) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        part.refuse("entry ", rank, " \"", printable(text), "\" is not two pieces with a space in between");
      }
      add_merge(text.substr(0, space), text.substr(space + 1), rank, part, options);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), rank, part, options);
    } else {
      part.refuse("entry ", rank, " is not a pair of pieces");
    }
    ++rank;
  }
}

void BytePairModel::add_merge(const std::string& left, const std::string& right, uint32_t rank, const JsonPart& part,
                              const TokenModelOptions& options) {
  const auto id_of = [&](const std::string& piece) {
    const auto found = ids_.find(piece);
    if (found == ids_.end()) part.refuse("entry ", rank, ": \"", printable(piece), "\" is not in the vocabulary");
    return found->second;
  };
  const std::string joined = left + right;
  const int32_t id = id_of(joined);
  const int32_t first = id_of(left), second = id_of(right);
  if (options.hidden.contains(joined)) return;
  merges_->set(first, second, {rank, id});
  if (!gets_bytes_) joined_.push_back(joined);
}

void BytePairModel::set_character(char32_t character, int32_t id) {
  const size_t page = character / 256;
  if (pages_.size() <= page) pages_.resize(page + 1);
  if (pages_[page].empty()) pages_[page].assign(256, -1);
  pages_[page][character % 256] = id;
}

int32_t BytePairModel::id_of_character(char32_t character) const {
  const size_t page = character / 256;
  return page < pages_.size() && !pages_[page].empty() ? pages_[page][character % 256] : -1;
}

bool BytePairModel::can_cut_before(std::string_view mark) const {
  if (gets_bytes_ || !words_.empty() || !ids_.contains(mark)) return false;
  return std::ranges::none_of(joined_, [&](const std::string& piece) {
    size_t at = 0;
    while (piece.compare(at, mark.size(), mark) == 0) at += mark.size();
    return piece.find(mark, at) != std::string::npos;
  });
}

std::unique_ptr<TokenModel::Scratch> BytePairModel::make_scratch() const {
  return std::make_unique<Work>();
}

void BytePairModel::encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const {
  if (!words_.empty()) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  Work& work = static_cast<Work&>(scratch);
  work.symbols.clear();
  split(word, work.symbols);
  if (work.symbols.size() <= kFew) {
    join_few(work.symbols, work);
  } else {
    join_many(work.symbols, work);
  }
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
}

// The ids of single characters. As there, an unknown token is added when the next known character is met.
void BytePairModel::split(std::string_view word, std::vector<int32_t>& symbols) const {
  bool is_unknown = false;
  const auto add_unknown = [&] {
    if (is_unknown) symbols.push_back(unknown_);
    is_unknown = false;
  };
  while (!word.empty()) {
    const size_t length = gets_bytes_ ? 1 : first_code_point(word).bytes;
    const std::string_view character = word.substr(0, length);
    word.remove_prefix(length);
    const int32_t id = gets_bytes_ ? byte_ids_[static_cast<uint8_t>(character[0])]
                                   : id_of_character(first_code_point(character).value);
    if (id >= 0) {
      add_unknown();
      symbols.push_back(id);
      continue;
    }
    if (falls_back_ && append_fallback(character, symbols)) continue;
    if (unknown_ >= 0) {
      if (!fuses_unknown_) add_unknown();
      is_unknown = true;
    }
  }
  add_unknown();
}

bool BytePairModel::append_fallback(std::string_view character, std::vector<int32_t>& symbols) const {
  std::string encoded;  // as there: the character that stands for a byte falls back to its own bytes
  if (gets_bytes_) {
    alphabet_.append_encoded(encoded, character);
    character = encoded;
  }
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return id_of(byte) >= 0; })) return false;
  for (const char byte : character) symbols.push_back(id_of(byte));
  return true;
}

void BytePairModel::join_few(std::vector<int32_t>& symbols, Work& work) const {
  if (symbols.size() < 2) return;
  std::vector<Merge>& merges = work.merges;
  merges.resize(symbols.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = merges_->find(symbols[i], symbols[i + 1]);
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) best = merges[i].rank < merges[best].rank ? i : best;
    if (merges[best].id < 0) return;
    const auto at = static_cast<std::ptrdiff_t>(best);
    symbols[best] = merges[best].id;
    symbols.erase(symbols.begin() + at + 1);
    merges.erase(merges.begin() + at);
    if (best < merges.size()) merges[best] = merges_->find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = merges_->find(symbols[best - 1], symbols[best]);
  }
}

void BytePairModel::join_many(std::vector<int32_t>& symbols, Work& work) const {
  const auto count = static_cast<uint32_t>(symbols.size());
  constexpr int32_t kGone = -1;
  auto& heap = work.heap;
  auto &next = work.next, &previous = work.previous;
  heap.clear();
  next.resize(count);
  previous.resize(count);
  const auto add_pair = [&](uint32_t left, uint32_t right) {
    const Merge merge = merges_->find(symbols[left], symbols[right]);
    if (merge.id >= 0) heap.push_back({merge.rank, left, merge.id});
    return merge.id >= 0;
  };
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: never used
    if (i + 1 < count) add_pair(i, i + 1);
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push_pair = [&](uint32_t left, uint32_t right) {
    if (add_pair(left, right)) std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Work::Pair best = heap.back();
    heap.pop_back();
    const uint32_t left = best.at;
    if (symbols[left] == kGone || next[left] == count) continue;
    const uint32_t right = next[left];
    if (merges_->find(symbols[left], symbols[right]).id != best.id) continue;  // they have changed since
    symbols[left] = best.id;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] < count) previous[next[left]] = left;
    if (left > 0) push_pair(previous[left], left);
    if (next[left] < count) push_pair(left, next[left]);
  }
  std::erase(symbols, kGone);
}

}  // namespace shiftron
