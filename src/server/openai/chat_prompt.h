// The prompt of a chat request: messages that a chat template renders, or ids that the request gives instead.
#pragma once

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/served_model.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

// Reads messages and their images, input_ids, chat_template, the template's variables, add_generation_prompt,
// continue_final_message, add_special_tokens and echo. Errors: fields that are wrong or contradict each other, and
// template variables that the template does not name, because they would have no effect.
//
// A request may bring its own template. A template can read only its variables, and its work is bounded.
ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools);

}  // namespace tessera
