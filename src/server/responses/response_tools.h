// Turns the tools of a Responses request into functions that chat templates know. A custom tool becomes a function with
// one string parameter. A function in a namespace gets the namespace as a prefix of its name. Calls are mapped back to
// the tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

struct ResponseTool {
  std::string shown;    // the name that the model sees
  std::string name;     // the name that the request gives the tool
  std::string space{};  // the namespace; "": none
  bool custom = false;  // the tool takes free text
};

struct ResponseTools {
  ToolFields fields{};
  std::vector<ResponseTool> list{};
  // Types of tools that are not shown to the model, because this server cannot run them.
  std::vector<std::string> skipped{};

  // Returns the tool that is shown under this name; null if there is none.
  const ResponseTool* find(std::string_view shown) const;
};

// Returns the name that the model sees.
std::string shown_tool_name(std::string_view space, std::string_view name);

// Reads tools, tool_choice and parallel_tool_calls. Skips tools of unknown types. If tool_choice lists allowed tools
// ("allowed_tools"), the model is shown only those.
ApiResult<ResponseTools> read_response_tools(const ApiFields& body);

// Returns the note that names the types of the skipped tools; "" if there are none.
std::string skipped_note(const ResponseTools& tools);

}  // namespace tessera
