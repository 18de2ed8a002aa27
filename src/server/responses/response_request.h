// Handles POST /v1/responses, which takes the items of a conversation and returns the items that the model adds.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/responses/response_answer.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/request_memory.h"

namespace tessera {

struct ResponseJob {
  ApiJob job;
  ResponseAnswer* answer = nullptr;  // points to job.answer
  bool background = false;
};

inline std::int64_t held_bytes(const ResponseJob& response, std::int64_t num_logits, std::int64_t hidden_size) {
  return held_bytes(response.job, num_logits, hidden_size);
}

// Makes the job of a request from `owner`. The request may refer to the owner's earlier responses in `store`. Slow
// (renders the template, tokenises, compiles a grammar): do not call it on the I/O thread. `model` and `store` outlive
// the job.
ApiResult<ResponseJob> prepare_response(const ServedModel& model, std::string_view body, ResponseStore& store,
                                        const std::string& owner);
// Returns the body of the answer to /v1/responses/input_tokens: the number of tokens in a request's prompt.
ApiResult<std::string> response_tokens_body(const ServedModel& model, std::string_view body, ResponseStore& store,
                                            const std::string& owner);

}  // namespace tessera
