// Tools for a model whose own form of tool calls is not known, or whose chat template has none: the functions are
// described in the system's message, calls are asked for as <tool_call>{"name": …, "arguments": {…}}</tool_call> (which
// ToolCallParser "generic" reads), and calls and results of earlier turns are written as text. Templates see neither
// `tools` nor the role "tool".
#pragma once

#include <string_view>

#include "tessera/base/json.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/text/chat_template.h"

namespace tessera {

inline constexpr std::string_view kGenericToolParser = "generic";
// For logs and the header X-Tessera-Note.
inline constexpr std::string_view kGenericToolNote =
    "the form of this model's tool calls is not known, or its template shows no tools: tools are described in the "
    "system "
    "message, and calls are read as <tool_call>{\"name\": ..., \"arguments\": {...}}</tool_call> (--tool-call-parser "
    "generic)";
inline constexpr std::string_view kNoGenericToolsNote =
    "the output's constraint leaves no room for tool calls: the tools were not shown to the model";

// Whether the prompt that the template makes has what a system's message says. Some templates refuse such messages,
// others drop them.
bool shows_system_message(const ChatTemplate& chat, const RenderOptions& options);

// `messages` as read_messages() returns them. Calls of the assistant are appended to its text, messages of the role
// "tool" become the user's (one for all that follow one another, and for the user's own after them: some templates want
// the roles to alternate). Where `tools` has any, their description is put into the first message: the system's, or the
// user's where `shows_system` is false.
Json with_generic_tools(const Json& messages, const ToolFields& tools, bool shows_system);

}  // namespace tessera
