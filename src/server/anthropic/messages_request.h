// Anthropic's POST /v1/messages takes a conversation and returns the model's turn. POST /v1/messages/count_tokens
// returns the number of tokens in the conversation's prompt.
//
// Errors are ApiErrors, to which http/error_shape.h gives Anthropic's shape.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request. Do not call this function on the I/O thread. It is slow, because it renders the template,
// tokenises the prompt and compiles a grammar. `model` must outlive the job. Any model name is accepted, because agents
// use the names of Anthropic's models. The answer repeats the name.
ApiResult<ApiJob> prepare_messages(const ServedModel& model, std::string_view body);

// Answers a count_tokens request, which has no max_tokens, with {"input_tokens": …}. Slow, because it renders and
// tokenises the prompt.
ApiResult<std::string> count_tokens_body(const ServedModel& model, std::string_view body);

}  // namespace tessera
