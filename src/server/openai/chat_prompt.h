// The prompt of a chat request: its messages rendered by a chat template, or the ids that it gives instead.
#pragma once

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Reads messages and their images, input_ids, chat_template, the template's variables, add_generation_prompt,
// continue_final_message, add_special_tokens and echo. Errors: fields that are wrong or contradict each other, and
// variables that the template does not name and that would have no effect.
//
// A request may bring its own template. A template reaches nothing but its variables, and its work is bounded.
ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools);

}  // namespace tessera
