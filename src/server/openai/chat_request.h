// Handles POST /v1/chat/completions, which takes a conversation and returns the model's turn.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request. Slow (renders the template, tokenises, compiles a grammar): do not call it on the I/O
// thread. `model` outlives the job.
ApiResult<ApiJob> prepare_chat(const ServedModel& model, std::string_view body);
// Returns only the prompt's text, as prepare_chat() would make it from the same body. The body must have messages.
ApiResult<std::string> render_chat(const ServedModel& model, std::string_view body);

}  // namespace tessera
