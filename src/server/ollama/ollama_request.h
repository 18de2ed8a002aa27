// Handles POST /api/chat and /api/generate, Ollama's routes for texts.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of POST /api/chat. A request without messages asks for the model to be loaded, and is answered at once.
ApiResult<ApiJob> prepare_ollama_chat(const ServedModel& model, std::string_view body);

// Makes the job of POST /api/generate. The field "system" becomes a system message, and the prompt becomes a user's
// message after it. With "raw", or if the model has no chat template, the prompt is used unchanged. A request without a
// prompt asks for the model to be loaded.
ApiResult<ApiJob> prepare_ollama_generate(const ServedModel& model, std::string_view body);

}  // namespace tessera
