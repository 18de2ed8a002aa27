#include "tessera/engine/schema/lookahead.h"

namespace tessera::schema {
namespace {

// Searches `pattern` from `at` on. Returns the first position of a character of `wanted` outside classes, escapes and
// nested groups. Returns npos if there is none.
std::size_t find_outside(std::string_view pattern, std::size_t at, std::string_view wanted) {
  int depth = 0;
  bool in_class = false;
  for (; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\') {
      ++at;
    } else if (in_class) {
      in_class = c != ']';
    } else if (depth == 0 && wanted.find(c) != std::string_view::npos) {
      return at;
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      --depth;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<PatternPart> split_lookaheads(std::string_view pattern) {
  const std::vector<PatternPart> whole = {{std::string(pattern), false}};
  if (!pattern.starts_with('^')) return whole;
  std::vector<PatternPart> parts;
  std::size_t at = 1;
  while (pattern.substr(at).starts_with("(?!") || pattern.substr(at).starts_with("(?=")) {
    const std::size_t end = find_outside(pattern, at + 3, ")");
    if (end == std::string_view::npos) return whole;
    parts.push_back({"^(?:" + std::string(pattern.substr(at + 3, end - at - 3)) + ")", pattern[at + 2] == '!'});
    at = end + 1;
  }
  const std::string_view rest = pattern.substr(at);
  const bool repeated = !rest.empty() && std::string_view("*+?{").find(rest.front()) != std::string_view::npos;
  if (parts.empty() || repeated || find_outside(rest, 0, "|") != std::string_view::npos) return whole;
  parts.push_back({"^" + std::string(rest), false});
  return parts;
}

}  // namespace tessera::schema
