// POST /v1/chat/completions: a conversation in, the model's turn out.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Slow (renders the template, tokenises, compiles a grammar): not for the I/O thread. `model` outlives the
// job.
ApiResult<ApiJob> prepare_chat(const ServedModel& model, std::string_view body);
// The prompt's text alone, as prepare_chat() would make it of the same body, which has messages.
ApiResult<std::string> render_chat(const ServedModel& model, std::string_view body);

}  // namespace tessera
