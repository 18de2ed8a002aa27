// Compresses answers with the Content-Encoding zstd or gzip, for clients that accept one of them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

// Shorter bodies are not compressed, because that would save a few packets at most.
inline constexpr std::size_t kLeastEncodedBytes = 4096;
// The maximum number of bytes that an encoder holds (0.98 MB were measured with zstd 1.5.4).
inline constexpr std::size_t kEncoderBytes = std::size_t{1} << 20;

// Returns the encoding for an answer to a request with this Accept-Encoding header: "zstd", "gzip", or "" for none. If
// the client gives both the same weight, chooses zstd.
std::string_view choose_coding(std::string_view accept_encoding);

// Compresses one body, which may come in parts. Throws if memory runs out. Cost: some milliseconds per megabyte.
class BodyEncoder {
 public:
  // `coding` is "zstd" or "gzip".
  explicit BodyEncoder(std::string_view coding);
  BodyEncoder(BodyEncoder&&) noexcept;
  ~BodyEncoder();

  std::string_view coding() const;
  // Returns the next compressed bytes, possibly none. If `last`, the body ends, and no further call may follow.
  std::string encode(std::string_view data, bool last);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
