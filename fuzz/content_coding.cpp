// Catches: crashes, endless work and memory beyond the limit when a compressed body is inflated; a body that is
// accepted although it was only partly inflated; a body that inflates differently under another limit.
#include "tessera/server/http/bodies/content_coding.h"

#include <zlib.h>
#include <zstd.h>

#include "fuzz.h"

using namespace tessera;

namespace {

constexpr std::size_t kLimit = std::size_t{1} << 20;
constexpr std::size_t kSmallLimit = 100;

std::string deflated(std::string_view text, std::string_view coding) {
  constexpr int kGzipFormat = 16;
  z_stream stream{};
  const int bits = coding == "gzip" ? MAX_WBITS + kGzipFormat : MAX_WBITS;
  fuzz::require(deflateInit2(&stream, 1, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib starts");
  std::string given(text);
  std::string made(deflateBound(&stream, static_cast<uLong>(given.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(given.data());
  stream.avail_in = static_cast<uInt>(given.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  fuzz::require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib deflates everything");
  made.resize(made.size() - stream.avail_out);
  deflateEnd(&stream);
  return made;
}

std::string compressed(std::string_view text, std::string_view coding) {
  if (coding != "zstd") return deflated(text, coding);
  std::string made(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(made.data(), made.size(), text.data(), text.size(), 1);
  fuzz::require(ZSTD_isError(size) == 0, "zstd compresses everything");
  made.resize(size);
  return made;
}

void check_refusal(const ApiError& error) {
  fuzz::require(error.http_status == 400 || error.http_status == 413, "a refusal is the client's fault");
  fuzz::require(!error.message.empty() && !error.code.empty(), "a refusal says why");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input = fuzz::as_text(data, size);
  constexpr std::string_view kCodings[] = {"gzip", "deflate", "zstd"};
  const std::string_view coding = kCodings[fuzz::take_choice(input, 3)];

  MemoryCharge memory;  // this memory is not counted against any budget
  ApiResult<std::string> body = decode_body(std::string(input), coding, kLimit, memory);
  ApiResult<std::string> small = decode_body(std::string(input), coding, kSmallLimit, memory);
  if (!body.ok()) check_refusal(body.error());
  if (!small.ok()) check_refusal(small.error());
  if (body.ok()) {
    fuzz::require(body->size() <= kLimit, "no more than the limit is inflated");
    fuzz::require(small.ok() == (body->size() <= kSmallLimit), "the limit decides, and nothing else");
    fuzz::require(!small.ok() || *small == *body, "the limit does not change what is inflated");
    ApiResult<std::string> cut = decode_body(std::string(input.substr(0, input.size() - 1)), coding, kLimit, memory);
    fuzz::require(!cut.ok() || cut->size() <= body->size(), "a body that is cut off has nothing more");
  } else {
    fuzz::require(!small.ok(), "a body that is refused is refused under a smaller limit");
  }

  ApiResult<std::string> back = decode_body(compressed(input, coding), coding, kLimit, memory);
  fuzz::require(back.ok() && *back == input, "what was compressed is inflated");
  return 0;
}
