#include "tessera/server/tools/harmony.h"

#include <algorithm>

#include "tessera/server/tools/call_text.h"

namespace tessera {
namespace {

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:/+-").find(c) != std::string_view::npos;
}

// Reads optional spaces, then `beginning`, then a word. Removes them from the front of `text` and stores the word in
// `word`. Returns false if `text` does not start in this way, or if `word` is already set.
bool take(std::string_view& text, std::string_view beginning, std::string_view& word) {
  const std::string_view rest = without_spaces_in_front(text);
  if (!word.empty() || !rest.starts_with(beginning)) return false;
  const std::string_view from = rest.substr(beginning.size());
  const auto end = std::ranges::find_if_not(from, is_of_word);
  word = from.substr(0, static_cast<std::size_t>(end - from.begin()));
  if (word.empty()) return false;
  text = from.substr(word.size());
  return true;
}

}  // namespace

std::optional<HarmonyHeader> read_harmony_header(std::string_view text) {
  HarmonyHeader header;
  std::string_view role;
  std::string_view type;
  while (!without_spaces_in_front(text).empty()) {
    const bool good = take(text, kHarmonyStart, role) || take(text, kHarmonyChannel, header.channel) ||
                      take(text, kHarmonyRecipient, header.recipient) || take(text, kHarmonyConstrain, type) ||
                      take(text, "", type);
    if (!good) return std::nullopt;
  }
  return header;
}

}  // namespace tessera
