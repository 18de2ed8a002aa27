// Reads the tools of a Messages request into the form that chat templates and parsers of calls take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

struct MessageTools {
  ToolFields called{};  // every tool that the model may call
  // The tools at the beginning of the prompt. Tools with "defer_loading", and tools that only a tool_addition block
  // defines, are left out. In the prompt, a left-out tool appears only at the block that names it. Adding a tool
  // therefore does not change the beginning of the prompt.
  ToolFields shown{};
  // The types of tools that Anthropic's servers or models provide ("web_search_20250305", …). They are not passed on to
  // the model.
  std::vector<std::string> unavailable{};
};

// Reads "tools", the definitions in tool_addition blocks of system messages, and "tool_choice". Errors: a tool without
// a name or schema, two tools with one name, and a choice that no tool matches.
ApiResult<MessageTools> read_message_tools(const ApiFields& body);

// Returns the tool with this name as a line of JSON, {"name", "description", "parameters"}. Returns "" if no tool has
// the name.
std::string tool_definition(const MessageTools& tools, std::string_view name);

// Returns the text of the header X-Tessera-Note about unavailable tools, or "" if there are none.
std::string note_of_unavailable(const MessageTools& tools);

}  // namespace tessera
