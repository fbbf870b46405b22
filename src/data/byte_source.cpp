// Reads raw bytes, and unpacks them member by member.
#include "data/byte_source.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/shell_word.h"

namespace shiftron {
namespace {

constexpr size_t kUnpackedPiece = size_t{1} << 20;

// The command that tests a packed file.
const char* tester_of(Packing packing) {
  constexpr const char* kTesters[] = {"", "gzip -t", "zstd -t", "xz -t", "bzip2 -t"};
  return kTesters[static_cast<size_t>(packing)];
}

}  // namespace

// The piece that is handed out, and the next one, which the helper fills.
struct ByteSource::Ahead {
  std::string ready, next;
  size_t taken = 0;  // of ready
  bool is_started = false, is_last = false;
  HelperThread helper{true};  // is destroyed first: its work touches the strings
};

ByteSource::ByteSource(const std::string& path, Packing packing, const std::shared_ptr<OpenedStream>& stream)
    : path_(path), is_stream_(stream != nullptr), packing_(packing) {
  if (stream == nullptr) {
    file_ = FileDescriptor::open_for_reading(path);
    file_.expect_front_to_back();
  } else {
    if (std::exchange(stream->is_taken, true)) {
      throw_bad_input(path, " is a pipe, which can only be read once; name it once, or write it to a file first");
    }
    file_ = std::move(stream->descriptor);
    begin_ = std::move(stream->begin);
  }
  if (packing == Packing::none) return;
  unpacker_ = Unpacker::make(packing);
  ahead_ = std::make_unique<Ahead>();
}

ByteSource::~ByteSource() = default;

size_t ByteSource::read_some(char* data, size_t bytes) {
  if (packing_ == Packing::none) return read_raw(data, bytes);
  Ahead& ahead = *ahead_;
  const auto fill = [this, &ahead] {
    ahead.next.resize(kUnpackedPiece);
    ahead.next.resize(unpack_some(ahead.next.data(), kUnpackedPiece));
  };
  size_t done = 0;
  while (done < bytes) {
    if (ahead.taken == ahead.ready.size()) {
      if (ahead.is_last) break;
      if (!std::exchange(ahead.is_started, true)) ahead.helper.start(fill);
      ahead.helper.finish();
      ahead.ready.swap(ahead.next);
      ahead.taken = 0;
      ahead.is_last = ahead.ready.size() < kUnpackedPiece;
      if (!ahead.is_last) ahead.helper.start(fill);
      continue;
    }
    const size_t count = std::min(bytes - done, ahead.ready.size() - ahead.taken);
    std::copy_n(ahead.ready.data() + ahead.taken, count, data + done);
    ahead.taken += count;
    done += count;
  }
  return done;
}

void ByteSource::skip(uint64_t bytes) {
  if (packing_ == Packing::none) {
    file_.seek(bytes);
    raw_read_ = bytes;
    return;
  }
  std::string skipped(kUnpackedPiece, '\0');
  while (bytes > 0) {
    const size_t got = read_some(skipped.data(), static_cast<size_t>(std::min<uint64_t>(bytes, kUnpackedPiece)));
    if (got == 0) throw_bad_input(path_, " is shorter than before; fetch it again");
    bytes -= got;
  }
}

size_t ByteSource::read_raw(char* data, size_t bytes) {
  size_t got = std::min(bytes, begin_.size());
  std::copy_n(begin_.data(), got, data);
  begin_.erase(0, got);
  if (got < bytes) got += file_.read_some(data + got, bytes - got);
  raw_read_ += got;
  return got;
}

// False at the end of the file.
bool ByteSource::read_packed() {
  packed_.resize(kUnpackedPiece);
  packed_.resize(read_raw(packed_.data(), kUnpackedPiece));
  used_ = 0;
  return !packed_.empty();
}

void ByteSource::throw_damaged(const std::string& reason) const {
  throw_bad_input(
      path_, " is damaged: ", reason, " at byte ", raw_read_ - packed_.size() + used_, "; fetch it again",
      is_stream_ ? "" : detail::concatenate(" (`", tester_of(packing_), " ", shell_word(path_), "` tests it)"));
}

size_t ByteSource::unpack_some(char* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const bool has_more = used_ < packed_.size() || read_packed();
    if (!is_inside_) {
      if (!has_more) break;
      if (has_unpacked_) {
        // Some programs fill a file up with zeros.
        used_ = std::min(packed_.find_first_not_of('\0', used_), packed_.size());
        if (used_ == packed_.size()) continue;
        unpacker_->restart();
      }
      is_inside_ = true;
    }
    Unpacker::Step step;
    try {
      step = unpacker_->unpack(std::string_view(packed_).substr(used_), data + done, bytes - done);
    } catch (const Error& error) {
      throw_damaged(error.what());
    }
    used_ += step.used;
    done += step.made;
    if (step.has_ended) {
      is_inside_ = false;
      has_unpacked_ = true;
    } else if (step.made == 0 && (!has_more || step.used == 0)) {
      throw_damaged(has_more ? "corrupt data" : "it is cut off");
    }
  }
  return done;
}

}  // namespace shiftron
