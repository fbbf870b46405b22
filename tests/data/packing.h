// Packs texts, for tests of what unpacks them.
#pragma once

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "data/unpacker.h"

namespace shiftron {

constexpr Packing kPackings[] = {Packing::gzip, Packing::zstd, Packing::xz, Packing::bzip2};

// One member, with a checksum.
inline std::string packed(Packing packing, std::string text) {
  std::string out(text.size() + text.size() / 50 + 1000, '\0');
  size_t made = 0;
  bool good = false;
  auto* to = reinterpret_cast<unsigned char*>(out.data());
  auto* from = reinterpret_cast<unsigned char*>(text.data());
  if (packing == Packing::gzip) {
    z_stream stream{};
    deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = from;
    stream.avail_in = static_cast<unsigned>(text.size());
    stream.next_out = to;
    stream.avail_out = static_cast<unsigned>(out.size());
    good = deflate(&stream, Z_FINISH) == Z_STREAM_END;
    made = stream.total_out;
    deflateEnd(&stream);
  } else if (packing == Packing::zstd) {
    const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
    made = ZSTD_compress2(context.get(), out.data(), out.size(), text.data(), text.size());
    good = ZSTD_isError(made) == 0;
  } else if (packing == Packing::xz) {
    good = lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, from, text.size(), to, &made, out.size()) == LZMA_OK;
  } else {
    auto size = static_cast<unsigned>(out.size());
    good =
        BZ2_bzBuffToBuffCompress(out.data(), &size, text.data(), static_cast<unsigned>(text.size()), 1, 0, 0) == BZ_OK;
    made = size;
  }
  if (!good) throw std::runtime_error("the text cannot be packed");
  out.resize(made);
  return out;
}

}  // namespace shiftron
