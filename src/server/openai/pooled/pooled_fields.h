// Reads the fields that are common to the routes without generation: /v1/embeddings, /v1/classify, /v1/rerank and
// /v1/score.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct PooledFields {
  Truncation truncation{};
  bool add_special_tokens = true;
  // vLLM's use_activation: whether an embedding model normalises its vectors, and whether a classifier turns logits
  // into scores. Unset: the model's default.
  std::optional<bool> use_activation{};
  std::int64_t priority = 0;
  double timeout_s = 0;

  // Makes a request from a prompt. Truncates the prompt if the fields say so. The request generates no tokens. If the
  // prompt is empty or too long for the context, returns a 400 that names `param`.
  ApiResult<Request> make_request(std::vector<TokenId> prompt, const ServedModel& model,
                                  const std::string& param) const;
};

ApiResult<PooledFields> read_pooled_fields(const ApiFields& fields, const ServedModel& model);

// Counts the prompt tokens of the requests that have ended.
struct PooledUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;

  void add(const Completion& end) {
    prompt_tokens += end.prompt_tokens;
    cached_tokens += end.cached_tokens;
  }
};

}  // namespace tessera
