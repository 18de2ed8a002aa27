// The UTF-8 and Unicode functions that a tokenizer needs: decode, encode, validate, normal forms, character classes.
// Strings are bytes, and every function says how it treats bytes that are not UTF-8. All functions are pure and
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The result of decoding at one byte offset.
struct Utf8Step {
  enum class Kind : std::uint8_t {
    kCharacter,   // `length` bytes are the character `code`
    kIllFormed,   // `length` >= 1 bytes can never be part of a character (a "maximal subpart")
    kIncomplete,  // all `length` remaining bytes are the beginning of a character
  };
  Kind kind;
  std::size_t length;
  char32_t code;  // U+FFFD unless kCharacter
};

// Decodes at byte `pos`. Precondition: pos < text.size().
Utf8Step decode_utf8(std::string_view text, std::size_t pos);

// Appends the encoding of `code`; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code);

// Returns the offset of the first byte that is not well-formed UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

// Replaces each ill-formed part, and an incomplete character at the end, by one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Returns the number of bytes before an incomplete character at the end of `text`, or text.size() if there is none.
// Ill-formed bytes count too, because later bytes cannot complete them.
std::size_t complete_utf8_prefix(std::string_view text);

// Returns the number of characters. Each ill-formed part counts as one.
std::size_t count_characters(std::string_view text);

// Returns the number of bytes of the extended grapheme cluster (what a reader sees as one character) at `pos`.
// Precondition: `text` is well-formed, pos < text.size().
std::size_t grapheme_length(std::string_view text, std::size_t pos);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Converts to a normal form. Precondition: `text` is well-formed. Fails only for lack of memory.
Result<std::string> normalize(std::string_view text, NormalForm form);

// Returns whether the character has the property White_Space.
bool is_whitespace(char32_t code);
bool is_number(char32_t code);       // general category N*
bool is_letter(char32_t code);       // general category L*
bool is_mark(char32_t code);         // general category M*
bool is_punctuation(char32_t code);  // general category P*, and ASCII symbols
bool is_word(char32_t code);  // the word characters of UTS 18: alphabetic, marks, decimal numbers, connectors, joiners
bool is_unprintable(char32_t code);  // control, format, surrogate, private, unassigned, separators except U+0020
bool is_upper(char32_t code);        // has a different lower case, and is not category Lt
bool is_lower(char32_t code);        // is category Ll, or has a different upper case and is not category Lt
char32_t to_upper(char32_t code);    // simple case mapping
char32_t to_lower(char32_t code);
char32_t to_title(char32_t code);

}  // namespace tessera
