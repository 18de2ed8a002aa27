// Small answers that need the model's name and tokenizer alone: /v1/models, /tokenize, /detokenize, /get_model_info.
#pragma once

#include <string>
#include <string_view>

#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// GET /v1/models
std::string models_body(const ServedModel& model);
// GET /v1/models/{id}
ApiResult<std::string> model_body(const ServedModel& model, std::string_view id);
// GET /get_model_info
std::string model_info_body(const ServedModel& model);
// POST /tokenize: {"prompt", "add_special_tokens", "return_token_strs"} to {"tokens", "count", "max_model_len"}, and
// "token_strs"
ApiResult<std::string> tokenize_body(const ServedModel& model, std::string_view body);
// POST /detokenize: {"tokens", "skip_special_tokens"} to {"prompt"}
ApiResult<std::string> detokenize_body(const ServedModel& model, std::string_view body);

}  // namespace tessera
