// Checks that the token ids of a request are in the model's vocabulary. Errors are kInvalidArgument and say where the
// id is.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/engine/request.h"

namespace tessera {

// Checks the ids of logit_bias, bad_words, allowed tokens and stop tokens.
Status check_chosen_ids(const Request& request, std::int64_t vocab_size);
// Checks that a prompt is not empty and that all its ids are in the vocabulary.
Status check_prompt_ids(std::span<const TokenId> prompt, std::int64_t vocab_size);

}  // namespace tessera
