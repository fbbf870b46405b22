// zlib, libzstd, liblzma and libbz2. (libarchive would be one library instead of four, but does not check the CRC of
// gzip, and takes a file that is cut off within the header of a later member for a whole one.)
#include "data/unpacker.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>

#include "core/check.h"

namespace shiftron {
namespace {

struct Kind {
  Packing packing;
  std::string_view magic;
  std::array<const char*, 2> endings;
};
constexpr Kind kKinds[] = {
    {Packing::gzip, "\x1F\x8B", {".gz", ".gzip"}},
    {Packing::zstd, "\x28\xB5\x2F\xFD", {".zst", ".zstd"}},
    {Packing::xz, std::string_view("\xFD\x37zXZ\0", 6), {".xz", ""}},
    {Packing::bzip2, "BZh", {".bz2", ""}},
};

// A text may begin with "BZh": a block or the end of the file must follow.
bool is_bzip2(std::string_view begin) {
  constexpr std::string_view kBlock = "1AY&SY", kEnd = "\x17\x72\x45\x38\x50\x90";
  return begin.size() >= 10 && (begin.substr(4, 6) == kBlock || begin.substr(4, 6) == kEnd);
}

// Frames of zstd that hold no data, as pzstd writes them.
bool is_skippable_frame(std::string_view begin) {
  return begin.size() >= 8 && (begin[0] & '\xF0') == '\x50' && begin.substr(1, 3) == "\x2A\x4D\x18";
}

[[noreturn]] void throw_damaged(const char* reason) {
  throw_bad_input(reason == nullptr ? "the library gives no reason" : reason);
}

[[noreturn]] void throw_no_memory() {
  throw std::bad_alloc();
}

// What these libraries count with an `unsigned int`.
unsigned short_size(size_t size) {
  return static_cast<unsigned>(std::min<size_t>(size, std::numeric_limits<unsigned>::max()));
}

class Gzip : public Unpacker {
 public:
  Gzip() {
    constexpr int kWithHeader = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kWithHeader) != Z_OK) throw_no_memory();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  Step unpack(std::string_view packed, char* unpacked, size_t room) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.next_out = reinterpret_cast<Bytef*>(unpacked);
    const unsigned in = stream_.avail_in = short_size(packed.size()), out = stream_.avail_out = short_size(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw_no_memory();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) throw_damaged(stream_.msg);
    return {in - stream_.avail_in, out - stream_.avail_out, result == Z_STREAM_END};
  }
  void restart() override { inflateReset(&stream_); }

 private:
  z_stream stream_{};
};

class Zstd : public Unpacker {
 public:
  Zstd() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw_no_memory();
    // The largest window, of `zstd --long=31`, as some corpora have it.
    const ZSTD_bounds window = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, window.upperBound);
  }
  ~Zstd() override { ZSTD_freeDCtx(context_); }

  Step unpack(std::string_view packed, char* unpacked, size_t room) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer out{unpacked, room, 0};
    const size_t result = ZSTD_decompressStream(context_, &out, &in);
    if (ZSTD_isError(result) != 0) throw_damaged(ZSTD_getErrorName(result));
    return {in.pos, out.pos, result == 0};
  }
  void restart() override { ZSTD_DCtx_reset(context_, ZSTD_reset_session_only); }

 private:
  ZSTD_DCtx* context_;
};

class Xz : public Unpacker {
 public:
  Xz() { restart(); }
  ~Xz() override { lzma_end(&stream_); }

  Step unpack(std::string_view packed, char* unpacked, size_t room) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(packed.data());
    stream_.avail_in = packed.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(unpacked);
    stream_.avail_out = room;
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    if (result == LZMA_MEM_ERROR) throw_no_memory();
    if (result == LZMA_FORMAT_ERROR) throw_damaged("not the format xz");
    if (result == LZMA_OPTIONS_ERROR) throw_damaged("unsupported options of xz");
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR) throw_damaged("corrupt data");
    return {packed.size() - stream_.avail_in, room - stream_.avail_out, result == LZMA_STREAM_END};
  }
  void restart() override {
    if (lzma_stream_decoder(&stream_, UINT64_MAX, 0) != LZMA_OK) throw_no_memory();
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Bzip2 : public Unpacker {
 public:
  Bzip2() { begin(); }
  ~Bzip2() override { BZ2_bzDecompressEnd(&stream_); }

  Step unpack(std::string_view packed, char* unpacked, size_t room) override {
    stream_.next_in = const_cast<char*>(packed.data());
    stream_.next_out = unpacked;
    const unsigned in = stream_.avail_in = short_size(packed.size()), out = stream_.avail_out = short_size(room);
    const int result = BZ2_bzDecompress(&stream_);
    if (result == BZ_MEM_ERROR) throw_no_memory();
    if (result == BZ_DATA_ERROR_MAGIC) throw_damaged("not the format bzip2");
    if (result != BZ_OK && result != BZ_STREAM_END) throw_damaged("corrupt data");
    return {in - stream_.avail_in, out - stream_.avail_out, result == BZ_STREAM_END};
  }
  void restart() override {
    BZ2_bzDecompressEnd(&stream_);
    stream_ = {};
    begin();
  }

 private:
  void begin() {
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw_no_memory();
  }
  bz_stream stream_{};
};

}  // namespace

Packing packing_of(std::string_view begin) {
  for (const Kind& kind : kKinds) {
    if (!begin.starts_with(kind.magic)) continue;
    if (kind.packing == Packing::bzip2 && !is_bzip2(begin)) continue;
    return kind.packing;
  }
  return is_skippable_frame(begin) ? Packing::zstd : Packing::none;
}

Packing packing_of_name(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending.empty()) return Packing::none;
  const auto found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return std::ranges::count(kind.endings, ending) > 0; });
  return found == std::end(kKinds) ? Packing::none : found->packing;
}

bool begins_packing(std::string_view begin, Packing packing) {
  const auto found = std::ranges::find(kKinds, packing, &Kind::packing);
  return found != std::end(kKinds) && found->magic.starts_with(begin.substr(0, found->magic.size())) &&
         begin.size() < 10;
}

std::unique_ptr<Unpacker> Unpacker::make(Packing packing) {
  switch (packing) {
    case Packing::gzip:
      return std::make_unique<Gzip>();
    case Packing::zstd:
      return std::make_unique<Zstd>();
    case Packing::xz:
      return std::make_unique<Xz>();
    case Packing::bzip2:
      return std::make_unique<Bzip2>();
    case Packing::none:
      break;
  }
  throw_crash("no packing to unpack");
}

}  // namespace shiftron
