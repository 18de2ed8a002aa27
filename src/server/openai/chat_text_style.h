// How the text of a conversation's answer is split into reasoning, content and calls: the model's parsers, and what the
// request asks for.
#pragma once

#include <string>

#include "tessera/server/openai/chat_text.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/served_model.h"

namespace tessera {

// `constrained`: a grammar applies from the first token on, so the text has neither reasoning nor calls in the model's
// own format. `separate`: reasoning is not part of the content. Error: tools, and a server that finds no calls.
ApiResult<ChatTextStyle> text_style_of(const ServedModel& model, const ToolFields& tools, const ChatPrompt& prompt,
                                       bool constrained, bool separate);

// Whether the text must contain special tokens. Some models mark calls or reasoning with them.
bool needs_special_tokens(const ChatTextStyle& style);

// Returns the answer's note about tools; "" if the model has its own format of calls. Tools in the generic format need
// text that a constraint of the output forbids, so they are withdrawn if there is a constraint.
std::string withdraw_generic_tools(const ServedModel& model, bool constrained, ToolFields& tools);

}  // namespace tessera
