// The prompt of a chat request: its messages rendered by a chat template, or the ids that it gives instead.
#pragma once

#include <string>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct ChatPrompt {
  std::string text{};          // the rendered text, or the decoded input ids; "" if neither is available
  std::vector<TokenId> ids{};  // all ids of the prompt, not yet checked against the context's length
  std::vector<PromptImage> images{};
  // The text so far of the last message, which the model continues (continue_final_message); else "".
  std::string begun{};
  std::string echo{};  // text at the beginning of the answer, if "echo" asks for it
};

// Reads messages and their images, input_ids, chat_template, the template's variables, add_generation_prompt,
// continue_final_message, add_special_tokens and echo. Errors: fields that are wrong or contradict each other, and
// variables that the template does not name and that would have no effect.
//
// A request may bring its own template. A template reaches nothing but its variables, and its work is bounded.
ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools);

}  // namespace tessera
