// Defines the alphabet of byte-level BPE. Each byte has a printable character, so that a vocabulary of byte strings can
// be written as text (GPT-2's bytes_to_unicode). A byte that is a printable Latin-1 character is written as this
// character. The other 68 bytes are written as U+0100, U+0101, … in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the UTF-8 of the character for `byte`: 1 or 2 bytes, valid for the program's life.
std::string_view byte_to_symbol(unsigned char byte);

// Returns the byte that a character stands for; nothing for other characters.
std::optional<unsigned char> symbol_to_byte(char32_t code);

// Appends the symbols of all bytes of `text`.
void append_symbols(std::string& out, std::string_view text);

// Appends the bytes that `symbols` stand for. If some character stands for no byte, appends the whole text unchanged.
// This happens for an added token such as "<|a b|>": a vocabulary has it as plain text, and a space is not a symbol.
void append_bytes(std::string& out, std::string_view symbols);

}  // namespace tessera
