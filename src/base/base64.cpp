#include "tessera/base/base64.h"

#include <array>
#include <cstdint>

namespace tessera {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 255;

// The values of the base64 digits, indexed by the digit's byte. The entries of all other bytes are kNoDigit.
constexpr std::array<std::uint8_t, 256> kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= bytes.size() - i ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t word = 0;
    std::size_t digits = 4;
    while (digits > 2 && i + 4 == text.size() && text[i + digits - 1] == '=') --digits;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint8_t digit = k < digits ? kValues[static_cast<unsigned char>(text[i + k])] : std::uint8_t{0};
      if (digit == kNoDigit) return std::nullopt;
      word = word << 6 | digit;
    }
    if ((word & ((1u << (24 - 8 * (digits - 1))) - 1)) != 0)
      return std::nullopt;  // to_base64() leaves the unused bits of the last digit 0
    for (std::size_t k = 0; k + 1 < digits; ++k) bytes += static_cast<char>(word >> (16 - 8 * k) & 255);
  }
  return bytes;
}

}  // namespace tessera
