#include "tessera/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Symbol {
  char text[2] = {};
  std::uint8_t length = 0;
};

struct Tables {
  std::array<Symbol, 256> symbols{};
  std::array<std::int16_t, 0x144> bytes{};  // [code point]: the byte that the character stands for; -1: none
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& b : tables.bytes) b = -1;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned code = stands_for_itself(byte) ? byte : next++;
    tables.bytes[code] = static_cast<std::int16_t>(byte);
    Symbol& symbol = tables.symbols[byte];
    if (code < 0x80) {
      symbol.text[0] = static_cast<char>(code);
      symbol.length = 1;
    } else {
      symbol.text[0] = static_cast<char>(0xC0 | (code >> 6));
      symbol.text[1] = static_cast<char>(0x80 | (code & 0x3F));
      symbol.length = 2;
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::string_view byte_to_symbol(unsigned char byte) {
  const Symbol& symbol = kTables.symbols[byte];
  return {symbol.text, symbol.length};
}

std::optional<unsigned char> symbol_to_byte(char32_t code) {
  if (code >= kTables.bytes.size() || kTables.bytes[code] < 0) return std::nullopt;
  return static_cast<unsigned char>(kTables.bytes[code]);
}

void append_symbols(std::string& out, std::string_view text) {
  for (const char c : text) {
    const Symbol& symbol = kTables.symbols[static_cast<unsigned char>(c)];
    out += symbol.text[0];
    if (symbol.length == 2) out += symbol.text[1];
  }
}

void append_bytes(std::string& out, std::string_view symbols) {
  const std::size_t before = out.size();
  for (std::size_t pos = 0; pos < symbols.size();) {
    const Utf8Step step = decode_utf8(symbols, pos);
    const auto byte = step.kind == Utf8Step::Kind::kCharacter ? symbol_to_byte(step.code) : std::nullopt;
    if (!byte) {
      out.resize(before);
      out += symbols;
      return;
    }
    out += static_cast<char>(*byte);
    pos += step.length;
  }
}

}  // namespace tessera
