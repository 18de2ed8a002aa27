// Writes data about tokens into OpenAI's answers: log-probabilities in OpenAI's form, and extensions (prompt
// log-probabilities and ids in vLLM's form, hidden states in SGLang's form).
#pragma once

#include <cstdint>
#include <span>

#include "tessera/engine/request.h"
#include "tessera/server/fields/json_parts.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Adds a list with one entry per token of the prompt. The first token's entry is null. Other entries are objects with
// the token and its most probable alternatives, {"<id>": {"logprob", "rank", "decoded_token"}, …}. "rank" counts from
// 1. It is null for a token that is not among the most probable. Borrows `tokens` and `tokenizer`.
void add_prompt_logprobs(JsonParts& parts, std::span<const TokenLogprobs> tokens, const Tokenizer* tokenizer);

// Writes a token with its log-probability and its alternatives in the form of OpenAI's chats and responses: {"token",
// "logprob", "bytes", "top_logprobs"}. `as_ids`: tokens are named by their ids.
void write_token_logprobs(JsonWriter& json, const TokenLogprobs& token, const Tokenizer* tokenizer, bool as_ids);

// Writes the last row of `states`, [rows × hidden_size], as a list of numbers. The last token was chosen from this row.
void write_last_hidden_state(JsonWriter& json, std::span<const float> states, std::int64_t hidden_size);

// Writes a list of numbers.
void write_ids(JsonWriter& json, std::span<const TokenId> ids);

}  // namespace tessera
