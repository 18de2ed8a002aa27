// Reads the tools of a chat request, and whether the model may or must call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/json.h"
#include "tessera/server/tools/output_grammar.h"

namespace tessera {

enum class ToolChoice : std::uint8_t {
  kNone,      // no tools, or the model must not see them
  kAuto,      // calls are found in the text, in the model's own format
  kRequired,  // a grammar makes the text a JSON list of calls, [{"name", "parameters"}, …]
  kNamed,     // a grammar makes the text the arguments of the named function
};

struct ToolFields {
  Json tools{};  // the list as templates see it; null with kNone
  ToolChoice choice = ToolChoice::kNone;
  std::string named{};   // the function's name, with kNamed
  bool parallel = true;  // several calls at a time are allowed
};

ApiResult<ToolFields> read_tools(const ApiFields& body);

// Returns the grammar for kRequired and kNamed; nothing for other choices. A reference in a tool's parameters can point
// only into the same parameters.
ApiResult<std::optional<OutputGrammar>> tool_grammar(const ToolFields& tools);

}  // namespace tessera
