// What the routes without tokens share: /v1/embeddings, /v1/rerank and /v1/score.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/prompts.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct PooledFields {
  Truncation truncation{};
  bool add_special_tokens = true;
  // vLLM's: whether vectors are normalised, and scores go through a sigmoid. None: as the model does it.
  std::optional<bool> use_activation{};
  std::int64_t priority = 0;
  double timeout_s = 0;

  // A request that generates nothing, of a prompt that is cut as asked. 400 that names `param` where it is empty or too
  // long for the context.
  ApiResult<Request> make_request(std::vector<TokenId> prompt, const ServedModel& model,
                                  const std::string& param) const;
};

ApiResult<PooledFields> read_pooled_fields(const ApiFields& fields, const ServedModel& model);

// Counts the tokens of the prompts whose requests have ended.
struct PooledUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;

  void add(const Completion& end) {
    prompt_tokens += end.prompt_tokens;
    cached_tokens += end.cached_tokens;
  }
};

}  // namespace tessera
