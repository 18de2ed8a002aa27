// Anthropic's POST /v1/messages takes a conversation and returns the model's turn. POST /v1/messages/count_tokens
// returns the length of the conversation's prompt.
//
// Errors are ApiErrors; http/error_shape.h gives them Anthropic's shape.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request. It is slow (renders the template, tokenises, compiles a grammar): do not call it on the
// I/O thread. `model` outlives the job. Any model name is accepted, because agents use the names of Anthropic's models;
// the answer repeats the name.
ApiResult<ApiJob> prepare_messages(const ServedModel& model, std::string_view body);

// Answers a count_tokens request, which has no max_tokens, with {"input_tokens": …}. Slow, because it renders and
// tokenises the prompt.
ApiResult<std::string> count_tokens_body(const ServedModel& model, std::string_view body);

}  // namespace tessera
