#include "tessera/server/http/bodies/body_encoder.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <new>

#include "tessera/server/http/http_message.h"

namespace tessera {
namespace {

constexpr std::string_view kCodings[] = {"zstd", "gzip"};
constexpr std::size_t kOutput = std::size_t{32} << 10;

// Returns the weight in parameters such as "q=0.5" (RFC 9110, 12.4.2): 1 if there is none, 0 if it is malformed.
double weight_of(std::string_view parameters) {
  const std::string_view text = trimmed(parameters);
  if (text.empty()) return 1;
  if (!equals_ignoring_case(text.substr(0, 2), "q=")) return 0;
  double weight = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + 2, end, weight);
  return read.ec == std::errc() && read.ptr == end && weight >= 0 && weight <= 1 ? weight : 0;
}

}  // namespace

std::string_view choose_coding(std::string_view accept_encoding) {
  std::array<double, std::size(kCodings)> weights{};
  std::array<bool, std::size(kCodings)> named{};
  double others = 0;
  while (!accept_encoding.empty()) {
    const std::size_t end = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view entry = accept_encoding.substr(0, end);
    accept_encoding.remove_prefix(std::min(end + 1, accept_encoding.size()));
    const std::size_t semicolon = std::min(entry.find(';'), entry.size());
    const std::string_view name = trimmed(entry.substr(0, semicolon));
    const double weight = weight_of(entry.substr(std::min(semicolon + 1, entry.size())));
    if (name == "*") others = weight;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (!equals_ignoring_case(name, kCodings[i])) continue;
      weights[i] = weight;
      named[i] = true;
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!named[i]) weights[i] = others;
  const auto best = std::ranges::max_element(weights);
  return *best > 0 ? kCodings[best - weights.begin()] : std::string_view();
}

struct BodyEncoder::Impl {
  explicit Impl(std::string_view its_coding) : coding(its_coding), zstd(nullptr, ZSTD_freeCCtx) {
    if (coding == "zstd") {
      zstd.reset(ZSTD_createCCtx());
      if (zstd == nullptr) throw std::bad_alloc();
      constexpr int kFastest = 1;
      constexpr int kWindowBits = 17;  // a larger window takes more memory than kEncoderBytes
      ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_compressionLevel, kFastest);
      ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_windowLog, kWindowBits);
      return;
    }
    constexpr int kGzipFormat = 16;  // zlib writes the gzip format if this is added to the window's bits
    constexpr int kMemoryLevel = 8;
    if (deflateInit2(&zlib, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + kGzipFormat, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
        Z_OK)
      throw std::bad_alloc();
  }
  ~Impl() {
    if (zstd == nullptr) deflateEnd(&zlib);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void encode_zstd(std::string_view data, bool last, std::string& out) {
    ZSTD_inBuffer in{.src = data.data(), .size = data.size(), .pos = 0};
    std::size_t left = 1;
    while (in.pos < in.size || (last && left > 0)) {
      ZSTD_outBuffer piece{.dst = buffer.data(), .size = buffer.size(), .pos = 0};
      left = ZSTD_compressStream2(zstd.get(), &piece, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      if (ZSTD_isError(left) != 0) throw std::bad_alloc();  // no other error is possible with these arguments
      out.append(buffer.data(), piece.pos);
    }
  }

  void encode_gzip(std::string_view data, bool last, std::string& out) {
    // The const_cast is safe, because zlib does not write to its input.
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    zlib.avail_in = static_cast<uInt>(data.size());
    int result = Z_OK;
    do {
      zlib.next_out = reinterpret_cast<Bytef*>(buffer.data());
      zlib.avail_out = static_cast<uInt>(buffer.size());
      result = deflate(&zlib, last ? Z_FINISH : Z_NO_FLUSH);
      out.append(buffer.data(), buffer.size() - zlib.avail_out);
    } while (last ? result == Z_OK : zlib.avail_out == 0);
  }

  std::string_view coding;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> zstd;  // null: gzip
  z_stream zlib{};
  std::array<char, kOutput> buffer;
};

BodyEncoder::BodyEncoder(std::string_view coding) : impl_(std::make_unique<Impl>(coding)) {}
BodyEncoder::BodyEncoder(BodyEncoder&&) noexcept = default;
BodyEncoder::~BodyEncoder() = default;

std::string_view BodyEncoder::coding() const { return impl_->coding; }

std::string BodyEncoder::encode(std::string_view data, bool last) {
  std::string out;
  if (impl_->zstd != nullptr) {
    impl_->encode_zstd(data, last, out);
  } else {
    impl_->encode_gzip(data, last, out);
  }
  return out;
}

}  // namespace tessera
