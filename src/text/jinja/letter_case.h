// Upper and lower case as Python's str converts them, on UTF-8 text.
#pragma once

#include <string>
#include <string_view>

namespace tessera::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character upper, the others lower
std::string swap_case(std::string_view text);
// str.title(): letters behind anything that is no cased letter become upper, the others lower.
std::string title(std::string_view text);
// The filter `title`: words end at white space, hyphens and opening brackets only.
std::string title_words(std::string_view text);

}  // namespace tessera::jinja
