// What OpenAI's answers have of tokens beyond their own fields: prompt log-probabilities and ids as vLLM's have them,
// hidden states as SGLang's.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/engine/request.h"
#include "tessera/server/fields/json_parts.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Adds a list with one entry for each token of the prompt: null for the first one; for others an object with the
// token and its most probable alternatives, {"<id>": {"logprob", "rank", "decoded_token"}, …}. "rank" counts from 1,
// and is null for a token that is not among those. Borrows `tokens` and `tokenizer`.
void add_prompt_logprobs(JsonParts& parts, std::span<const TokenLogprobs> tokens, const Tokenizer* tokenizer);

// Writes the last row of `states`, [rows × hidden_size], as a list of numbers: the one that the last token was chosen
// by.
void write_last_hidden_state(JsonWriter& json, std::span<const float> states, std::int64_t hidden_size);

// Writes a list of numbers.
void write_ids(JsonWriter& json, std::span<const TokenId> ids);

}  // namespace tessera
