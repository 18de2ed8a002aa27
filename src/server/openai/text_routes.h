// Small answers that need only the model's name and tokenizer: /v1/models, /tokenize, /detokenize, /get_model_info.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Returns the body of GET /v1/models. `for_codex` adds an empty list "models", which the client Codex expects.
std::string models_body(const ServedModel& model, bool for_codex = false);
// Returns the body of GET /v1/models/{id}.
ApiResult<std::string> model_body(const ServedModel& model, std::string_view id);
// Returns the body of GET /get_model_info.
std::string model_info_body(const ServedModel& model);
// Answers POST /tokenize: takes {"prompt", "add_special_tokens", "return_token_strs"}, and returns {"tokens", "count",
// "max_model_len"} and, if asked for, "token_strs".
ApiResult<std::string> tokenize_body(const ServedModel& model, std::string_view body);
// Answers POST /detokenize: takes {"tokens", "skip_special_tokens"}, and returns {"prompt"}.
ApiResult<std::string> detokenize_body(const ServedModel& model, std::string_view body);

}  // namespace tessera
