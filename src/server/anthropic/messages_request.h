// Anthropic's POST /v1/messages, which takes a conversation and returns the model's turn, and
// POST /v1/messages/count_tokens, which says how long its prompt is.
//
// Errors have the ApiError's own form; http/error_shape.h gives them Anthropic's.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request. Slow (renders the template, tokenises, compiles a grammar): do not call it on the I/O
// thread. `model` outlives the job. Every name of a model is accepted, because agents name models of Anthropic's; the
// answer repeats it.
ApiResult<ApiJob> prepare_messages(const ServedModel& model, std::string_view body);

// Returns {"input_tokens": …} for a request without max_tokens. Takes the time of rendering and tokenising.
ApiResult<std::string> count_tokens_body(const ServedModel& model, std::string_view body);

}  // namespace tessera
