// Reads a number from text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tessera {

// Returns `text` as a number of type T, an integer or a floating-point type. Returns nothing if the text as a whole is
// not such a number, or if the number is out of T's range.
template <class T>
std::optional<T> parsed_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tessera
