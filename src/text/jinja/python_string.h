// Implements Python's string operations on UTF-8 text, as templates use them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

// Returns str.isspace() of one character: true for White_Space and the four information separators (U+001C to U+001F).
bool is_space(char32_t code);

// Like Python's str.lstrip() and str.rstrip(), these functions strip white space, or any of the characters in `set`.
std::string_view trim_start(std::string_view text);
std::string_view trim_end(std::string_view text);
std::string_view trim_start(std::string_view text, std::string_view set);
std::string_view trim_end(std::string_view text, std::string_view set);

// find_first() returns the offset of the first occurrence of `part` at or after `from`. find_last() returns the offset
// of the last occurrence. Both return npos if there is none. Their time is linear in the sum of the sizes, even in the
// worst case.
std::size_t find_first(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view part);

// Does the same as Python's str.replace(). If count < 0, replaces all occurrences.
std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);

// Does the same as Python's str.split() without a separator: splits at runs of white space. If limit < 0, there is no
// limit.
std::vector<std::string> split_space(std::string_view text, std::int64_t limit, bool from_right);
// Does the same as Python's str.split(separator). Precondition: separator is not empty.
std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit, bool from_right);
// Does the same as Python's str.splitlines(keep_ends).
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// Writes <, >, &, ', " as HTML entities, spelled as in MarkupSafe.
std::string escape_html(std::string_view text);

// Returns the byte offset of character `index`, counted from 0; text.size() past the end.
std::size_t byte_offset(std::string_view text, std::size_t index);

}  // namespace tessera::jinja
