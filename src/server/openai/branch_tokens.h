// Finds the places in a chat prompt at which later prompts are likely to diverge from it: where messages begin.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/text/chat/chat_template.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Returns the token with which the template begins every message, such as "<|im_start|>". Returns nothing if there is
// no such token.
std::optional<TokenId> find_message_start(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                          const RenderOptions& options);

// Returns the indices at which messages begin that later prompts may replace, in ascending order. These are the second
// message, which follows the system prompt and the tools, and the last one, which is the model's turn. If the
// conversation is new, the message before the last one is another: it is the user's, and other sessions of the same
// agent share what is before it. `start` is the token of find_message_start().
std::vector<std::int64_t> find_branch_tokens(std::span<const TokenId> prompt, TokenId start, bool is_new);

}  // namespace tessera
