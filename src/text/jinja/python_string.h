// Python's string operations on UTF-8 text, as templates use them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

// Returns str.isspace() of one character: true for White_Space and the four information separators (U+001C to U+001F).
bool is_space(char32_t code);

// str.lstrip() and str.rstrip(): strip white space, or any of the characters in `set`.
std::string_view trim_start(std::string_view text);
std::string_view trim_end(std::string_view text);
std::string_view trim_start(std::string_view text, std::string_view set);
std::string_view trim_end(std::string_view text, std::string_view set);

// Return the offset of the first occurrence of `part` at or after `from`, and of the last occurrence; npos if there is
// none. Cost: linear in the sum of the sizes, even in the worst case.
std::size_t find_first(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view part);

// str.replace; count < 0: replaces all.
std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);

// str.split() on runs of white space; limit < 0: no limit.
std::vector<std::string> split_space(std::string_view text, std::int64_t limit, bool from_right);
// str.split(separator). Precondition: separator is not empty.
std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit, bool from_right);
// str.splitlines(keep).
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// Writes <, >, &, ', " as HTML entities, spelled as in MarkupSafe.
std::string escape_html(std::string_view text);

// Returns the byte offset of character `index`, counted from 0; text.size() past the end.
std::size_t byte_offset(std::string_view text, std::size_t index);

}  // namespace tessera::jinja
