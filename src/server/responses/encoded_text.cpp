#include "tessera/server/responses/encoded_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "tessera/base/base64.h"

namespace tessera {
namespace {

constexpr std::string_view kTextMark = "tessera1.";
constexpr std::size_t kSumDigits = 16;

// Returns the 64-bit FNV-1a hash, as hexadecimal digits.
std::string checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace

std::string encode_text(std::string_view text) {
  return fmt::format("{}{}.{}", kTextMark, checksum(text), to_base64(text));
}

std::optional<std::string> decode_text(std::string_view encoded) {
  if (!encoded.starts_with(kTextMark)) return std::nullopt;
  encoded.remove_prefix(kTextMark.size());
  if (encoded.size() < kSumDigits + 1 || encoded[kSumDigits] != '.') return std::nullopt;
  std::optional<std::string> text = from_base64(encoded.substr(kSumDigits + 1));
  if (!text || checksum(*text) != encoded.substr(0, kSumDigits)) return std::nullopt;
  return text;
}

}  // namespace tessera
