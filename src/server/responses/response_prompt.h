// Makes the prompt of a Responses request from the items of the conversation so far and the items of the request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/server/openai/conversation_prompt.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/responses/response_tools.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct ResponsePrompt {
  ChatPrompt prompt{};
  std::string kept_input{};  // ResponseAsker::keep of the request's items
  std::shared_ptr<const ConversationTurn> before{};
};

// The context of a request: the store of earlier responses, the client that owns them, what is kept of the request's
// items, the length of the answer, and what the model reads after the request.
struct ResponseAsker {
  ResponseStore& store;
  const std::string& owner;
  std::string (*keep)(const Json& items) = nullptr;  // makes the text to keep of the request's items; null: none is
  std::optional<std::int64_t> asked{};               // max_output_tokens
  std::string_view task{};                           // the text of a last message of the user; "": there is none
};

// Reads input, instructions, previous_response_id, reasoning and truncation.
ApiResult<ResponsePrompt> read_response_prompt(const ApiFields& fields, const ServedModel& model,
                                               const ToolFields& tools, const ResponseAsker& asker);

}  // namespace tessera
