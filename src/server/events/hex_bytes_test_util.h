// Bytes as hexadecimal text, for tests.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

inline std::string hex_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) >> 4]);
    text.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) & 15]);
  }
  return text;
}

}  // namespace tessera
