// Makes the prompt of a Responses request from the items of the conversation so far and the items of the request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/responses/response_tools.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct ResponsePrompt {
  ChatPrompt prompt{};
  std::string kept_input{};  // the request's items in the stored form, a JSON list; "" unless ResponseAsker::keeps
  std::shared_ptr<const ConversationTurn> before{};
};

// The context of a request: the store of earlier responses, the client that owns them, whether the request's items will
// be stored, and the length of the answer.
struct ResponseAsker {
  ResponseStore& store;
  const std::string& owner;
  bool keeps = false;                   // the request's items are to be stored
  std::optional<std::int64_t> asked{};  // max_output_tokens
};

// Reads input, instructions, previous_response_id, reasoning and truncation.
ApiResult<ResponsePrompt> read_response_prompt(const ApiFields& fields, const ServedModel& model,
                                               const ToolFields& tools, const ResponseAsker& asker);

}  // namespace tessera
