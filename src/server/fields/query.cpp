#include "tessera/server/fields/query.h"

#include <algorithm>
#include <charconv>

namespace tessera {
namespace {

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (decoded(pair.substr(0, equals)) != name) continue;
    return decoded(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

PathTarget target_of(std::string_view path, std::string_view route) {
  path.remove_prefix(path.find(route) + route.size());
  const std::size_t slash = std::min(path.find('/'), path.size());
  return {.id = std::string(path.substr(0, slash)), .action = std::string(path.substr(slash))};
}

}  // namespace tessera
