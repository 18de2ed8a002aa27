#include "tessera/server/openai/token_extras.h"

#include <algorithm>
#include <string>

#include "tessera/server/openai/token_text.h"

namespace tessera {
namespace {

constexpr std::int64_t kNoRank = 0;

void write_entry(JsonWriter& json, const TokenLogprob& token, std::int64_t rank, const Tokenizer* tokenizer) {
  constexpr float kLeast = -9999;  // vLLM's number for a token of probability 0
  json.key(std::to_string(token.id.value())).object().key("logprob").value(std::max(token.logprob, kLeast)).key("rank");
  if (rank == kNoRank) {
    json.null();
  } else {
    json.value(rank);
  }
  json.key("decoded_token").value(token_text(tokenizer, token.id)).end_object();
}

void write_alternatives(JsonWriter& json, const TokenLogprobs& token, const Tokenizer* tokenizer) {
  const auto own = std::find_if(token.top.begin(), token.top.end(),
                                [&](const TokenLogprob& top) { return top.id == token.token.id; });
  json.object();
  write_entry(json, token.token, own != token.top.end() ? own - token.top.begin() + 1 : kNoRank, tokenizer);
  for (const TokenLogprob& top : token.top) {
    if (top.id != token.token.id) write_entry(json, top, &top - token.top.data() + 1, tokenizer);
  }
  json.end_object();
}

void write_token(JsonWriter& json, const TokenLogprob& token, const Tokenizer* tokenizer, bool as_id) {
  constexpr float kLeast = -9999;  // OpenAI's number for a token of probability 0
  json.object().key("token").value(shown_token(tokenizer, token.id, as_id));
  json.key("logprob").value(std::max(token.logprob, kLeast)).key("bytes").array();
  for (const char byte : token_bytes(tokenizer, token.id)) json.value(static_cast<unsigned char>(byte));
  json.end_array();
}

}  // namespace

void write_token_logprobs(JsonWriter& json, const TokenLogprobs& token, const Tokenizer* tokenizer, bool as_ids) {
  write_token(json, token.token, tokenizer, as_ids);
  json.key("top_logprobs").array();
  for (const TokenLogprob& top : token.top) {
    write_token(json, top, tokenizer, as_ids);
    json.end_object();
  }
  json.end_array().end_object();
}

void add_prompt_logprobs(JsonParts& parts, std::span<const TokenLogprobs> tokens, const Tokenizer* tokenizer) {
  parts.once([](JsonWriter& json) { json.array(); });
  parts.each(tokens.size(), [tokens, tokenizer](JsonWriter& json, std::size_t i) {
    if (i == 0) {
      json.null();
    } else {
      write_alternatives(json, tokens[i], tokenizer);
    }
  });
  parts.once([](JsonWriter& json) { json.end_array(); });
}

void write_last_hidden_state(JsonWriter& json, std::span<const float> states, std::int64_t hidden_size) {
  json.array();
  const auto width = std::min(states.size(), static_cast<std::size_t>(hidden_size));
  for (const float value : states.last(width)) json.value(value);
  json.end_array();
}

void write_ids(JsonWriter& json, std::span<const TokenId> ids) {
  json.array();
  for (const TokenId id : ids) json.value(id.value());
  json.end_array();
}

}  // namespace tessera
