#include "tessera/server/http/bodies/content_coding.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tessera/server/http/http_message.h"

namespace tessera {
namespace {

constexpr std::size_t kPiece = 64 * 1024;  // bytes inflated at a time
// The largest accepted window of a zstd frame: 8 MiB, which RFC 8878 asks every decoder to support. Larger windows
// would take memory that no limit on the body's size covers.
constexpr int kMaxZstdWindowLog = 23;

bool is_gzip(std::string_view coding) {
  return equals_ignoring_case(coding, "gzip") || equals_ignoring_case(coding, "x-gzip");
}
bool is_deflate(std::string_view coding) { return equals_ignoring_case(coding, "deflate"); }
bool is_zstd(std::string_view coding) { return equals_ignoring_case(coding, "zstd"); }

ApiError broken(std::string_view coding, std::string_view why) {
  return {.message = fmt::format("the request's body is not valid {}: {}", coding, why),
          .param = {},
          .code = "invalid_content_encoding"};
}

ApiError too_long(std::size_t max_bytes) {
  return {.http_status = 413,
          .message = fmt::format("the request's body is longer than {} bytes once inflated", max_bytes),
          .param = {},
          .code = "request_too_large"};
}

// The inflated text so far. Its memory is charged together with that of the compressed body.
class Inflated {
 public:
  Inflated(std::size_t body_bytes, std::size_t max_bytes, MemoryCharge& memory)
      : body_bytes_(body_bytes), max_bytes_(max_bytes), memory_(memory) {}

  ApiStatus append(std::string_view piece) {
    if (piece.size() > max_bytes_ - out_.size()) return too_long(max_bytes_);
    const std::size_t size = out_.size() + piece.size();
    if (size > out_.capacity()) {
      const std::size_t room = std::max(size, std::min(2 * out_.capacity(), max_bytes_));
      // Charges the old and the new buffer, because both exist while the text is copied.
      TRY(memory_.set(static_cast<std::int64_t>(body_bytes_ + out_.capacity() + room)));
      out_.reserve(room);
    }
    out_ += piece;
    return api_ok();
  }
  std::string take() { return std::move(out_); }

 private:
  std::size_t body_bytes_;
  std::size_t max_bytes_;
  MemoryCharge& memory_;
  std::string out_;
};

// Inflates one or more gzip members, or one zlib stream.
ApiStatus inflate_zlib(std::string& body, bool gzip, Inflated& out) {
  const std::string_view name = gzip ? "gzip" : "deflate";
  constexpr int kGzipFormat = 16;  // zlib reads the gzip format if this is added to the window's bits
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(body.data());
  stream.avail_in = static_cast<uInt>(body.size());
  if (inflateInit2(&stream, gzip ? MAX_WBITS + kGzipFormat : MAX_WBITS) != Z_OK) return internal_error("out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);

  std::array<char, kPiece> piece;
  for (;;) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) return internal_error("out of memory");
    if (result == Z_BUF_ERROR) return broken(name, "it ends early");
    if (result != Z_OK && result != Z_STREAM_END)
      return broken(name, stream.msg != nullptr ? stream.msg : "a dictionary is needed");
    TRY(out.append({piece.data(), piece.size() - stream.avail_out}));
    if (result == Z_OK) continue;
    if (stream.avail_in == 0) return api_ok();
    if (!gzip || inflateReset(&stream) != Z_OK) return broken(name, "bytes follow its end");
  }
}

// Inflates one or more zstd frames.
ApiStatus inflate_zstd(std::string_view body, Inflated& out) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (context == nullptr || ZSTD_isError(ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxZstdWindowLog)))
    return internal_error("out of memory");
  ZSTD_inBuffer in{.src = body.data(), .size = body.size(), .pos = 0};
  std::array<char, kPiece> piece;
  for (;;) {
    ZSTD_outBuffer room{.dst = piece.data(), .size = piece.size(), .pos = 0};
    const std::size_t left = ZSTD_decompressStream(context.get(), &room, &in);
    if (ZSTD_isError(left)) return broken("zstd", ZSTD_getErrorName(left));
    TRY(out.append({piece.data(), room.pos}));
    if (left == 0 && in.pos == in.size) return api_ok();
    if (in.pos == in.size && room.pos < room.size) return broken("zstd", "it ends early");
  }
}

}  // namespace

bool is_known_coding(std::string_view coding) {
  return coding.empty() || equals_ignoring_case(coding, "identity") || is_gzip(coding) || is_deflate(coding) ||
         is_zstd(coding);
}

ApiResult<std::string> decode_body(std::string body, std::string_view coding, std::size_t max_bytes,
                                   MemoryCharge& memory) {
  Inflated out(body.size(), max_bytes, memory);
  if (is_gzip(coding) || is_deflate(coding)) {
    TRY(inflate_zlib(body, is_gzip(coding), out));
  } else if (is_zstd(coding)) {
    TRY(inflate_zstd(body, out));
  } else {
    return body;
  }
  return out.take();
}

}  // namespace tessera
