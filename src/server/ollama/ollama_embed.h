// Handles POST /api/embed and /api/embeddings, Ollama's routes for vectors.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Takes one text or several ("input"), and answers with a list of normalised vectors. A text that is too long is cut at
// its end, unless "truncate" is false.
ApiResult<ApiJob> prepare_ollama_embed(const ServedModel& model, std::string_view body);

// Handles the older route: takes one text ("prompt"), and answers with one vector.
ApiResult<ApiJob> prepare_ollama_embeddings(const ServedModel& model, std::string_view body);

}  // namespace tessera
