// Tools for a model whose own format of tool calls is unknown, or whose chat template shows no tools. The system
// message describes the functions and asks for calls of the form <tool_call>{"name": …, "arguments": {…}}</tool_call>,
// which ToolCallParser "generic" reads. Calls and results of earlier turns are written as text. Templates get neither
// `tools` nor messages with the role "tool".
#pragma once

#include <string_view>

#include "tessera/base/json.h"
#include "tessera/server/tools/chat_tools.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

inline constexpr std::string_view kGenericToolParser = "generic";
// The note for logs and for the header X-Tessera-Note.
inline constexpr std::string_view kGenericToolNote =
    "the form of this model's tool calls is not known, or its template shows no tools: tools are described in the "
    "system "
    "message, and calls are read as <tool_call>{\"name\": ..., \"arguments\": {...}}</tool_call> (--tool-call-parser "
    "generic)";
inline constexpr std::string_view kNoGenericToolsNote =
    "the output's constraint leaves no room for tool calls: the tools were not shown to the model";

// Renders a short conversation, and returns whether the prompt contains the system message's text. Some templates
// refuse system messages; others drop them.
bool shows_system_message(const ChatTemplate& chat, const RenderOptions& options);

// Returns `messages`, the result of read_messages(), in a form without tools. The assistant's calls are appended to its
// text. Consecutive "tool" messages and a "user" message after them become one "user" message, because some templates
// require the roles to alternate. If there are tools, the first of these rules that applies places their description:
// - If the first message is a system or developer message, the description is appended to it.
// - If `shows_system`, the description becomes a system message at the front.
// - If the first message is a user message, the description is prepended to it.
// - Otherwise, the description becomes a user message at the front.
Json with_generic_tools(const Json& messages, const ToolFields& tools, bool shows_system);

}  // namespace tessera
