// The turns of a Messages request: "system" and "messages", checked and in the form that chat templates expect.
#pragma once

#include "tessera/server/anthropic/message_tools.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_messages.h"

namespace tessera {

// Reads the turns. The list has roles "system", "user", "assistant" and "tool", each in the place where the request has
// it; "system" comes first. Images borrow from the request.
//
// A system message may have tool_addition and tool_removal blocks, which become texts, and one with "clear_at"
// "next_user_message" is left out after the user's next message. A tool_result becomes a turn of the role "tool", with
// the name of its call. Its images follow in the user's turn, because few templates render images of tools. Ids of
// calls are nine letters and digits. A tool_reference becomes the definition of the tool. A line that begins with
// "x-anthropic-billing-header" at the beginning of "system" is dropped: it changes from session to session, and would
// keep their prompts from having a beginning in common.
//
// Errors name the path of the block: an unknown role or type, a missing member, a tool_result without its tool_use.
ApiResult<ChatMessages> read_turns(const ApiFields& body, const MessageTools& tools, bool images_allowed);

}  // namespace tessera
