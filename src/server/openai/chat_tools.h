// The tools of a chat request, and whether the model may or must call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/json.h"
#include "tessera/server/openai/output_grammar.h"

namespace tessera {

enum class ToolChoice : std::uint8_t {
  kNone,      // no tools, or the model shall not see them
  kAuto,      // calls are found in the text, in the model's own form
  kRequired,  // the text is a JSON list of calls, [{"name", "parameters"}, …], by a grammar
  kNamed,     // the text is the arguments of the named function, by a grammar
};

struct ToolFields {
  Json tools{};  // a list as templates see it; null with kNone
  ToolChoice choice = ToolChoice::kNone;
  std::string named{};   // with kNamed
  bool parallel = true;  // more than one call at a time
};

ApiResult<ToolFields> read_tools(const ApiFields& body);

// What kRequired and kNamed constrain the output to; none otherwise. References in a tool's parameters stay within
// them.
ApiResult<std::optional<OutputGrammar>> tool_grammar(const ToolFields& tools);

}  // namespace tessera
