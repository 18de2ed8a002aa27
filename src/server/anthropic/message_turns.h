// Reads "system" and "messages" of a Messages request, checks them, and returns the turns that chat templates expect.
#pragma once

#include "tessera/server/anthropic/message_tools.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_messages.h"

namespace tessera {

// Reads the turns. They have the roles "system", "user", "assistant" and "tool". The turn of the field "system" comes
// first. The turns of "messages" follow in their order. Images borrow from the request.
//
// A system message may have tool_addition and tool_removal blocks, which become texts. A system message with "clear_at"
// "next_user_message" is left out once the user's next message has come. A tool_result becomes a turn with the role
// "tool" and the name of the called tool. Its images follow in the user's turn, because few templates render images of
// tools. Ids of calls are replaced by ids of nine letters and digits. A tool_reference becomes the definition of the
// tool. If the first line of "system" begins with "x-anthropic-billing-header", the line is dropped. This line differs
// between sessions, so the prompts of two sessions would have no common prefix.
//
// Errors: an unknown role or type, a missing member, and a tool_result without its tool_use. The error names the path
// of the block.
ApiResult<ChatMessages> read_turns(const ApiFields& body, const MessageTools& tools, bool images_allowed);

}  // namespace tessera
