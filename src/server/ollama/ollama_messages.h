// Reads the messages of /api/chat, and makes messages from the prompt of /api/generate.
#pragma once

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_messages.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

// Reads "messages": {"role", "content", "thinking", "images", "tool_calls", "tool_name"}. Images are base64, come
// before the message's text, and borrow from the request. The list may be empty.
ApiResult<ChatMessages> read_ollama_messages(const ApiFields& body, const MessageKinds& kinds);

// Makes messages from the fields "system", "prompt" and "images".
ApiResult<ChatMessages> read_ollama_prompt(const ApiFields& body, const MessageKinds& kinds);

// Reads "tools". Their "type" may be left out.
ApiResult<ToolFields> read_ollama_tools(const ApiFields& body);

}  // namespace tessera
