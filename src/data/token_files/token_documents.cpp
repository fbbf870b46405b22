// Cuts files of tokens into documents.
#include "data/token_files/token_documents.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace shiftron {

TokenDocuments::Opened::Opened(const TokenFile& file, bool with_ends)
    : tokens(file.path, file.offset, file.tokens, size_of(file.element)),
      ends(with_ends && file.ends ? file.ends() : nullptr),
      masks(file.mask ? std::make_unique<WindowedFile>(file.mask->path, file.mask->offset, file.tokens, 1) : nullptr) {}

TokenDocuments::TokenDocuments(const std::vector<TokenFile>& files, const TokenVocabulary& vocabulary,
                               std::vector<int32_t> bytes_of)
    : files_(files), vocabulary_(vocabulary), bytes_of_(std::move(bytes_of)) {
  for (const TokenFile& file : files) {
    has_targets_ |= file.mask.has_value();
    if (file.mask.has_value() == files.front().mask.has_value()) continue;
    const auto& [with, without] = file.mask ? std::pair(file, files.front()) : std::pair(files.front(), file);
    throw_bad_input(with.path, " has a mask, but ", without.path,
                    " has none; give masks for all files or for none, or import them separately (data.train takes "
                    "several datasets)");
  }
}

void TokenDocuments::restart() {
  ahead_.reset();
  file_ = 0;
  at_ = end_ = passed_ = 0;
  inside_ = false;
  counts_ = {};
}

// Goes to the next end of a document, in the index or that of the file; false after the last file.
bool TokenDocuments::go_to_next_end() {
  inside_ = false;
  while (file_ < files_.size()) {
    const TokenFile& file = files_[file_];
    if (ahead_ == nullptr) {
      ahead_ = std::make_unique<Opened>(file, true);
      at_ = end_ = 0;
      if (ahead_->ends == nullptr && file.tokens > 0) {
        end_ = file.tokens;
        return true;
      }
    }
    if (ahead_->ends != nullptr) {
      if (const auto end = ahead_->ends->next()) {
        end_ = *end;
        if (end_ > at_) return true;
        ++counts_.empty;
        continue;
      }
    }
    ahead_.reset();
    ++file_;
  }
  return false;
}

// The number of ids from `at_` up to an end token or `end`.
int64_t TokenDocuments::ids_up_to(uint64_t end) {
  const TokenFile& file = files_[file_];
  const size_t width = size_of(file.element);
  uint64_t at = at_;
  while (at < end) {
    const std::string_view raw = ahead_->tokens.from(at, end - at);
    const auto held = static_cast<int64_t>(raw.size() / width);
    const int64_t ids = ids_before(file.element, raw.data(), held, vocabulary_.end_of_document, vocabulary_.size);
    at += static_cast<uint64_t>(ids);
    if (ids == held) continue;
    const char* const stop = raw.data() + static_cast<size_t>(ids) * width;
    // Either the end token, which is an id, or no id.
    if (ids_before(file.element, stop, 1, -1, vocabulary_.size) == 1) break;
    throw_bad_input(file.path, ": ", number_text(file.element, stop), " at position ", at,
                    " is not within the vocabulary of ", vocabulary_.size, "; ids are 0 to ", vocabulary_.size - 1,
                    " (read as ", to_string(file.element), ", format ", file.format, ")");
  }
  return static_cast<int64_t>(at - at_);
}

std::optional<OrderedDocuments::Document> TokenDocuments::next() {
  while (at_ < end_ || go_to_next_end()) {
    const Document document{ids_up_to(end_), at_, file_};
    const uint64_t ids = static_cast<uint64_t>(document.tokens), after = at_ + ids;
    const bool has_end = after < end_;  // it stopped at an end token
    const uint64_t taken = ids + (has_end ? 1 : 0);
    at_ += taken;
    passed_ += taken * size_of(files_[file_].element);
    counts_.open += has_end ? 0 : 1;
    if (ahead_->ends != nullptr && at_ < end_ && !std::exchange(inside_, true)) ++counts_.split;
    if (document.tokens > 0) return document;
    ++counts_.empty;
  }
  return std::nullopt;
}

TokenDocuments::Opened& TokenDocuments::opened_for_reading(size_t file) {
  if (reading_file_ != file) {
    reading_ = std::make_unique<Opened>(files_[file], false);
    reading_file_ = file;
  }
  return *reading_;
}

bool TokenDocuments::is_learned(uint64_t token) {
  const char value = reading_->masks->from(token, 1)[0];
  if (value == 0 || value == 1) return value == 1;
  throw_bad_input(reading_->masks->path(), ": ", static_cast<int>(static_cast<unsigned char>(value)), " at position ",
                  token, "; a mask holds 1 for tokens that are learned and 0 for the others");
}

int64_t TokenDocuments::read(const Document& document, int64_t first, int64_t count, const Piece& piece) {
  const TokenFile& file = files_[document.file];
  Opened& opened = opened_for_reading(document.file);
  const size_t width = size_of(file.element);
  const uint64_t begin = document.first + static_cast<uint64_t>(first);
  for (int64_t at = 0; at < count;) {
    const std::string_view raw =
        opened.tokens.from(begin + static_cast<uint64_t>(at), static_cast<uint64_t>(count - at));
    const auto held = static_cast<int64_t>(raw.size() / width);
    widen(file.element, raw.data(), held, piece.ids + at);
    at += held;
  }
  int64_t text_bytes = 0;
  for (int64_t i = 0; i < count && !bytes_of_.empty(); ++i) text_bytes += bytes_of_[static_cast<size_t>(piece.ids[i])];
  if (has_targets_) mask_targets(document, first, count, piece);
  return text_bytes;
}

void TokenDocuments::mask_targets(const Document& document, int64_t first, int64_t count, const Piece& piece) {
  const TokenFile& file = files_[document.file];
  const uint64_t begin = document.first + static_cast<uint64_t>(first);
  const uint64_t after = document.first + static_cast<uint64_t>(document.tokens);  // the document's last token
  const auto id_at = [&](uint64_t token) {
    int32_t id = 0;
    widen(file.element, reading_->tokens.from(token, 1).data(), 1, &id);
    return id;
  };
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t next = begin + static_cast<uint64_t>(i) + 1;
    const bool is_end = next == after;
    // Only an end token that the source has comes with a mask of its own.
    const bool has_own = !is_end || (next < file.tokens && id_at(next) == vocabulary_.end_of_document);
    const int32_t target = is_end ? vocabulary_.end_of_document : i + 1 < count ? piece.ids[i + 1] : id_at(next);
    piece.targets[i] = is_learned(has_own ? next : next - 1) ? target : kNotCounted;
  }
}

TokenDocument TokenDocuments::whole(const Document& document) {
  TokenDocument result;
  const auto tokens = static_cast<size_t>(document.tokens);
  result.ids.resize(tokens);
  result.targets.resize(has_targets_ ? tokens : 0);
  result.text_bytes = read(document, 0, document.tokens, {result.ids.data(), result.targets.data()});
  result.where = files_[document.file].path + ": the document from position " + std::to_string(document.first);
  return result;
}

}  // namespace shiftron
