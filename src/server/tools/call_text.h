// Text helpers that the formats of tool calls share.
#pragma once

#include <string_view>

namespace tessera {

inline constexpr std::string_view kCallSpaces = " \n\r\t";

inline bool is_call_space(char c) { return kCallSpaces.find(c) != std::string_view::npos; }

inline std::string_view without_spaces_in_front(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kCallSpaces);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

inline std::string_view without_spaces_around(std::string_view text) {
  text = without_spaces_in_front(text);
  return text.substr(0, text.find_last_not_of(kCallSpaces) + 1);
}

}  // namespace tessera
