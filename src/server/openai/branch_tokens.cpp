#include "tessera/server/openai/branch_tokens.h"

#include <algorithm>
#include <string>

#include "tessera/base/json.h"

namespace tessera {
namespace {

Json probe_message(const char* role) {
  Json made = Json::object();
  made.set("role", Json(role));
  made.set("content", Json("a"));
  return made;
}

}  // namespace

std::optional<TokenId> find_message_start(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                          const RenderOptions& options) {
  Json messages = Json::array();
  for (const char* role : {"user", "assistant", "user"}) messages.push_back(probe_message(role));
  const Result<std::string> text = chat.render(messages, options);
  if (!text.ok()) return std::nullopt;
  const Result<std::vector<TokenId>> ids = tokenizer.encode(*text, {.add_special_tokens = false});
  if (!ids.ok()) return std::nullopt;
  constexpr std::ptrdiff_t kTurns = 4;  // three messages and the model's turn; a template may add a system prompt
  const auto begins = std::ranges::find_if(
      *ids, [&](TokenId id) { return tokenizer.is_special(id) && std::ranges::count(*ids, id) >= kTurns; });
  return begins == ids->end() ? std::nullopt : std::optional(*begins);
}

std::vector<std::int64_t> find_branch_tokens(std::span<const TokenId> prompt, TokenId start, bool is_new) {
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] == start) starts.push_back(static_cast<std::int64_t>(i));
  if (starts.size() < 2) return {};
  std::vector<std::int64_t> found = {starts[1]};
  if (is_new && starts.size() > 3) found.push_back(starts[starts.size() - 2]);
  if (starts.size() > 2) found.push_back(starts.back());
  return found;
}

}  // namespace tessera
