// Decides how an answer's text is split into reasoning, content and calls, from the model's parsers and the request's
// fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// Returns the ids of the mark that ends the reasoning of the model's parser, for ServedModel::reasoning_end. Returns
// none if the parser has no such mark or the model no tokenizer.
std::vector<TokenId> reasoning_end_of(const ServedModel& model);

// Returns a limit of `tokens` tokens for the reasoning of a text with this style. Returns nothing if the text has no
// reasoning, or if the reasoning lacks its opening or its closing mark.
std::optional<ReasoningLimit> limit_reasoning(const ServedModel& model, const ChatTextStyle& style,
                                              std::int64_t tokens);

// Returns whether the text must contain special tokens, with which some models mark calls or reasoning.
bool needs_special_tokens(const ChatTextStyle& style);

// Does nothing and returns "" if the request has no tools or the model has a call format of its own. Otherwise the
// model uses the generic format (kGenericToolParser). If the model may choose whether to call (kAuto) and the output is
// constrained, the constraint forbids the text of a call. The function then removes all tools and returns a note for
// the answer, which says that the model was not shown the tools. In other cases the note says that the generic format
// is used.
std::string withdraw_generic_tools(const ServedModel& model, bool constrained, ToolFields& tools);

}  // namespace tessera
