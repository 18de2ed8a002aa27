// Decides how an answer's text is split into reasoning, content and calls, from the model's parsers and the request's
// fields.
#pragma once

#include <string>

#include "tessera/server/openai/chat_text.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/served_model.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

// Returns the style of an answer's text. `constrained`: a grammar applies from the first token on, so the text has
// neither reasoning nor calls in the model's own format. `separate`: reasoning is not part of the content. Returns an
// error if the request has tools but the server has no tool-call parser (--tool-call-parser none).
ApiResult<ChatTextStyle> text_style_of(const ServedModel& model, const ToolFields& tools, const ChatPrompt& prompt,
                                       bool constrained, bool separate);

// Returns whether the text must contain special tokens, with which some models mark calls or reasoning.
bool needs_special_tokens(const ChatTextStyle& style);

// Has an effect only if the model has no call format of its own and therefore uses the generic format
// (kGenericToolParser). In this case it removes the tools if the model may choose whether to call (kAuto) and the
// output is constrained, because the constraint forbids the text of a call. Returns a note for the answer: that the
// model was not shown the tools, or that the generic format is used. The note is "" if the request has no tools or the
// model has its own format.
std::string withdraw_generic_tools(const ServedModel& model, bool constrained, ToolFields& tools);

}  // namespace tessera
