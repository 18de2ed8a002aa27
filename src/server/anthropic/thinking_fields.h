// Whether and how much the model is to think: "thinking" and "output_config.effort" of a Messages request and of its
// system messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

struct ThinkingFields {
  // The request asks for thinking. If not, the model is told not to think as far as its template can, and thinking is
  // left out of the answer: clients that do not know it take the first block for the text.
  bool on = false;
  bool omitted = false;                  // blocks of thinking have no text, but a signature
  std::optional<std::int64_t> budget{};  // tokens; chooses the effort, and is no limit
  std::optional<std::string> effort{};   // "low", "medium" or "high"; Anthropic's levels above are "high"
};

ApiResult<ThinkingFields> read_thinking(const ApiFields& body);

// Returns the variables by which templates are told, as far as this one names them: enable_thinking, thinking and
// reasoning_effort.
Json thinking_variables(const ThinkingFields& thinking, const ChatTemplate& chat);

}  // namespace tessera
