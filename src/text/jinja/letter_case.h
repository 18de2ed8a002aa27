// Converts UTF-8 text to upper and lower case as Python's str does.
#pragma once

#include <string>
#include <string_view>

namespace tessera::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character in upper case, the others in lower case
std::string swap_case(std::string_view text);
// Converts like str.title(): a letter becomes upper case after any character that is not a cased letter. All other
// letters become lower case.
std::string title(std::string_view text);
// Converts like the filter `title`: words end only at white space, hyphens and opening brackets.
std::string title_words(std::string_view text);

}  // namespace tessera::jinja
