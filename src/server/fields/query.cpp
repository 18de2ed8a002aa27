#include "tessera/server/fields/query.h"

#include <algorithm>
#include <charconv>
#include <utility>

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

// A decoded parameter.
struct Parameter {
  std::string name;
  std::string value;
};

// Removes the first parameter from `query`, which is not empty, and returns it.
Parameter take_parameter(std::string_view& query) {
  const std::size_t end = std::min(query.find('&'), query.size());
  const std::string_view pair = query.substr(0, end);
  query.remove_prefix(std::min(end + 1, query.size()));
  const std::size_t equals = std::min(pair.find('='), pair.size());
  return {.name = decoded(pair.substr(0, equals)), .value = decoded(pair.substr(std::min(equals + 1, pair.size())))};
}

}  // namespace

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    Parameter parameter = take_parameter(query);
    if (parameter.name == name) return std::move(parameter.value);
  }
  return std::nullopt;
}

std::vector<std::string> query_values(std::string_view query, std::string_view name) {
  const std::string of_list = std::string(name) + "[]";
  std::vector<std::string> values;
  while (!query.empty()) {
    Parameter parameter = take_parameter(query);
    if (parameter.name == name || parameter.name == of_list) values.push_back(std::move(parameter.value));
  }
  return values;
}

PathTarget target_of(std::string_view path, std::string_view route) {
  path.remove_prefix(path.find(route) + route.size());
  const std::size_t slash = std::min(path.find('/'), path.size());
  return {.id = std::string(path.substr(0, slash)), .action = std::string(path.substr(slash))};
}

}  // namespace tessera
