// Reads the field "reasoning" of requests to Chat Completions and to the Responses API. The field is an object with the
// members "effort" and "summary". Its other members have no effect.
#pragma once

#include "tessera/base/json.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

// Returns the template's variables for "effort": reasoning_effort, and enable_thinking, which is false for "none". An
// effort has no effect on a template that names neither.
ApiResult<Json> reasoning_variables(const ApiFields& fields, const ChatTemplate& chat);

// Returns whether "summary", or its older name "generate_summary", asks for a summary.
ApiResult<bool> wants_reasoning_summary(const ApiFields& fields);

}  // namespace tessera
