// Python's string operations on UTF-8 text, as templates use them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::jinja {

// str.isspace for one character: White_Space and the four information separators.
bool is_space(char32_t code);

// str.lstrip() and str.rstrip(): of white space, or of any of the characters of `set`.
std::string_view trim_start(std::string_view text);
std::string_view trim_end(std::string_view text);
std::string_view trim_start(std::string_view text, std::string_view set);
std::string_view trim_end(std::string_view text, std::string_view set);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character upper, the others lower
std::string swap_case(std::string_view text);
// str.title(): letters behind anything that is no cased letter become upper, the others lower.
std::string title(std::string_view text);
// The filter `title`: words end at white space, hyphens and opening brackets only.
std::string title_words(std::string_view text);

// The offset of the first occurrence of `part` at or behind `from`, and of the last one; npos where there
// is none. Cost: linear in the sizes, whatever the texts.
std::size_t find_first(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_last(std::string_view text, std::string_view part);

// str.replace; count < 0: all.
std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t count);

// str.split() on runs of white space; limit < 0: no limit.
std::vector<std::string> split_space(std::string_view text, std::int64_t limit, bool from_right);
// str.split(separator). Precondition: separator is not empty.
std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit, bool from_right);
// str.splitlines(keep).
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// <, >, &, ', " as HTML entities, spelled as MarkupSafe spells them.
std::string escape_html(std::string_view text);

// The inside of a string literal with its escapes resolved.
Result<std::string> unescape(std::string_view literal);

// The byte offset of character `index`, counted from 0; text.size() behind the end.
std::size_t byte_offset(std::string_view text, std::size_t index);

// int(text) and float(text); none where Python raises ValueError. The error: a number beyond 64 bits.
Result<std::optional<std::int64_t>> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace tessera::jinja
