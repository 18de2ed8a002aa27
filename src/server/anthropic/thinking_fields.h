// Reads whether and how much the model is to think. A Messages request says this in "thinking" and in
// "output_config.effort", and its system messages may change the effort.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

struct ThinkingFields {
  // True if the request asks for thinking. If false, the template's variables for thinking, if it has any, are set to
  // off. Thinking is also left out of the answer, because a client that does not expect thinking would mistake the
  // first block for the answer's text.
  bool on = false;
  bool omitted = false;                  // blocks of thinking have no text, only a signature
  std::optional<std::int64_t> budget{};  // in tokens; limits the thinking, and replaces a missing `effort`
  std::optional<std::string> effort{};   // "low", "medium" or "high"; Anthropic's higher levels become "high"
};

ApiResult<ThinkingFields> read_thinking(const ApiFields& body);

// Returns values for those of the variables enable_thinking, thinking and reasoning_effort that the template names.
Json thinking_variables(const ThinkingFields& thinking, const ChatTemplate& chat);

}  // namespace tessera
