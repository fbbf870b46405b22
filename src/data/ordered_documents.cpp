// Counts the documents of a shard, then copies them.
#include "data/ordered_documents.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "data/shard_sealing.h"

namespace shiftron {
namespace {

// Passes whole documents on in groups: as many as fit a shard, or one that is larger.
class ShardGroups {
 public:
  ShardGroups(OrderedDocuments& documents, int64_t shard_tokens, int64_t pack)
      : documents_(documents), most_(shard_tokens), pack_(pack), end_(documents.has_ends() ? 0 : 1) {}

  struct Member {
    OrderedDocuments::Document document;
    int64_t filling = 0;  // end tokens after it, which fill a window
  };

  // Goes to the next group; false after the last.
  bool next() {
    group_.clear();
    tokens_ = 0;
    for (; next_ || read_next(); next_.reset()) {
      const int64_t count = next_->document.tokens + end_;
      if (!group_.empty()) {
        fill(filling(position_, count, pack_));
        if (tokens_ + count > most_) return true;
      }
      group_.push_back(*next_);
      tokens_ += count;
      position_ += count;
    }
    if (!group_.empty()) fill(filling(position_, pack_ + 1, pack_));  // the last window
    return !group_.empty();
  }
  const std::vector<Member>& group() const { return group_; }
  int64_t tokens() const { return tokens_; }  // of the group, with end tokens and filling

 private:
  bool read_next() {
    const auto document = documents_.next();
    if (document) next_ = Member{*document};
    return document.has_value();
  }
  void fill(int64_t count) {
    group_.back().filling = count;
    tokens_ += count;
    position_ += count;
  }

  OrderedDocuments& documents_;
  const int64_t most_, pack_, end_;  // end_: tokens that are added to each document
  int64_t tokens_ = 0;
  int64_t position_ = 0;  // of the end of the group, over all groups
  std::vector<Member> group_;
  std::optional<Member> next_;  // read, but in no group yet
};

// Copies documents to a shard, a piece at a time.
class DocumentCopy {
 public:
  DocumentCopy(OrderedDocuments& documents, int32_t end_of_document)
      : documents_(documents),
        end_(end_of_document),
        ids_(kPiece + 1),
        targets_(documents.has_targets() ? kPiece + 1 : 0) {}

  // Returns the bytes of the document's text.
  int64_t copy(const OrderedDocuments::Document& document, ShardWriter& writer) {
    int32_t* const targets = targets_.empty() ? nullptr : targets_.data();
    int64_t text_bytes = 0;
    for (int64_t at = 0; at < document.tokens;) {
      int64_t piece = std::min(document.tokens - at, kPiece);
      text_bytes += documents_.read(document, at, piece, {ids_.data(), targets});
      at += piece;
      if (at == document.tokens && !documents_.has_ends()) {
        ids_[static_cast<size_t>(piece)] = end_;
        if (targets != nullptr) targets[piece] = kNotCounted;
        ++piece;
      }
      writer.append_piece(ids_.data(), piece, targets);
    }
    writer.end_document(text_bytes);
    return text_bytes;
  }

 private:
  static constexpr int64_t kPiece = 1 << 15;  // tokens: what is widened stays in the processor's cache
  OrderedDocuments& documents_;
  int32_t end_;
  std::vector<int32_t> ids_, targets_;
};

}  // namespace

int64_t filling(int64_t position, int64_t tokens, int64_t pack) {
  const int64_t room = pack > 0 ? (pack - position % pack) % pack : 0;
  return room < tokens ? room : 0;
}

void refuse_shards(int64_t shard_tokens, size_t most, const std::string& enough) {
  throw_bad_input("--shard-tokens ", shard_tokens, " makes more than the ", most, " shards that ", kDescriptionFile,
                  " can hold; give --shard-tokens ", enough);
}

DatasetDescription write_ordered(OrderedDocuments& documents, const ShardHeader& header, int64_t shard_tokens,
                                 const std::string& directory, const std::function<void(int64_t)>& progressed) {
  DatasetDescription description{header, 0, {}};
  const size_t most = most_described_shards(header);
  ShardGroups groups(documents, shard_tokens, header.pack);
  DocumentCopy copy(documents, header.end_of_document);
  ShardSealing shards;
  int64_t written = 0;
  while (groups.next()) {
    if (shards.shards() == most) refuse_shards(shard_tokens, most, "twice as many, or more");
    const std::string path = directory + "/" + shard_name(shards.shards());
    ShardWriter writer(path, header, groups.tokens(), std::ssize(groups.group()));
    for (const ShardGroups::Member& member : groups.group()) {
      description.text_bytes += copy.copy(member.document, writer);
      writer.fill(member.filling);
      progressed(written += member.document.tokens + (documents.has_ends() ? 0 : 1) + member.filling);
    }
    shards.add(path, writer.close());
  }
  description.shards = shards.finish();
  return description;
}

}  // namespace shiftron
