// Collects what the access log and traces say about a job's work in the engine.
#pragma once

#include <span>
#include <string_view>

#include "tessera/engine/request.h"
#include "tessera/server/http/http.h"

namespace tessera {

// Sets the facts that are known at the job's start. `id` is the answer's id.
void note_start(GenerationFacts& facts, std::string_view id, std::span<const Request> requests);
// Adds a request that has ended.
void note_end(GenerationFacts& facts, const Completion& end, FinishReason finish);

}  // namespace tessera
