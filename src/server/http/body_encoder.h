// Answers that are compressed because the client accepts it: Content-Encoding zstd and gzip.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

// Shorter bodies stay as they are: compressing them saves a few packets at most.
inline constexpr std::size_t kLeastEncodedBytes = 4096;
// The most memory that an encoder holds (0.98 MB were measured with zstd 1.5.4).
inline constexpr std::size_t kEncoderBytes = std::size_t{1} << 20;

// Returns the coding for an answer to a request with this Accept-Encoding header: "zstd", "gzip", or "" for none. Of
// codings that the client likes equally it is the first of these.
std::string_view choose_coding(std::string_view accept_encoding);

// Compresses one body part by part. An error (out of memory) is an exception. Cost: some
// milliseconds a megabyte.
class BodyEncoder {
 public:
  // `coding` is "zstd" or "gzip".
  explicit BodyEncoder(std::string_view coding);
  BodyEncoder(BodyEncoder&&) noexcept;
  ~BodyEncoder();

  std::string_view coding() const;
  // Returns the next compressed bytes, possibly none. With `last` the body ends, and nothing may follow.
  std::string encode(std::string_view data, bool last);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
