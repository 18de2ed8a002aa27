// The prompt of a chat request: its messages through a chat template, or the ids that it gives instead.
#pragma once

#include <string>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct ChatPrompt {
  std::string text{};          // as rendered; of ids: decoded; "" where neither can be had
  std::vector<TokenId> ids{};  // of all of it, however long
  std::vector<PromptImage> images{};
  // Where the last message goes on (continue_final_message): its text so far. "" elsewhere.
  std::string begun{};
  std::string echo{};  // what the answer begins with, where "echo" asks for it
};

// Reads messages and their images, input_ids, chat_template, the variables of templates, add_generation_prompt,
// continue_final_message, add_special_tokens and echo. Errors: fields that are wrong, that contradict each other, or
// variables that the template does not name, which would be without effect.
//
// A request may bring a template of its own: templates reach nothing but their variables, and their work is bounded.
ApiResult<ChatPrompt> read_chat_prompt(const ApiFields& fields, const ServedModel& model, const ToolFields& tools);

}  // namespace tessera
