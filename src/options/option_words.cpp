#include "tessera/options/option_words.h"

#include <algorithm>
#include <cctype>

#include "tessera/runner/dispatch/rules.h"

namespace tessera {
namespace {

// If `text` begins with the message of a piecewise rule, returns the length of this message. Otherwise returns 0.
// with_flags() leaves these messages unchanged.
std::size_t rule_message_length(std::string_view text) {
  for (const Rule& rule : piecewise_rules())
    if (text.starts_with(rule.message)) return rule.message.size();
  return 0;
}

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

// Returns whether the word from `begin` to `end` is part of a path: "/data/page_size/x", "page_size.json".
bool in_path(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && (text[begin - 1] == '/' || text[begin - 1] == '.')) return true;
  if (end == text.size()) return false;
  return text[end] == '/' || (text[end] == '.' && end + 1 < text.size() && is_name_char(text[end + 1]));
}

}  // namespace

std::string with_flags(std::string_view message, std::span<const FlagValue> flags) {
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t fixed = rule_message_length(message.substr(at));
    text += message.substr(at, fixed);
    at += fixed;
    std::size_t end = at;
    while (end < message.size() && is_name_char(message[end])) ++end;
    if (end == at) {
      if (at < message.size()) text += message[at++];
      continue;
    }
    const std::string_view word = message.substr(at, end - at);
    std::string flag = "--" + std::string(word);
    std::replace(flag.begin(), flag.end(), '_', '-');
    const bool names_option =
        word.find('_') != std::string_view::npos || (at == 0 && message.substr(end).starts_with(':'));
    const bool known = names_option && !in_path(message, at, end) &&
                       std::any_of(flags.begin(), flags.end(), [&](const FlagValue& f) { return f.flag == flag; });
    text += known ? flag : std::string(word);
    at = end;
  }
  return text;
}

std::string with_option_names(std::string_view message) {
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    const bool begins_word = at == 0 || !is_name_char(message[at - 1]);
    const std::string_view rest = message.substr(at);
    std::size_t end = 2;
    while (end < rest.size() && is_name_char(rest[end])) ++end;
    const bool is_flag = begins_word && rest.starts_with("--") && end > 2 &&
                         std::islower(static_cast<unsigned char>(rest[2])) != 0 && rest.substr(0, end) != "--help";
    if (!is_flag) {
      text += message[at++];
      continue;
    }
    std::string name(rest.substr(2, end - 2));
    std::replace(name.begin(), name.end(), '-', '_');
    text += name;
    at += end;
  }
  return text;
}

}  // namespace tessera
