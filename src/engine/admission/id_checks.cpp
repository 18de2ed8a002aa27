#include "tessera/engine/admission/id_checks.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace tessera {
namespace {

Status check_id(std::string_view what, TokenId token, std::int64_t vocab_size) {
  if (token.value() >= 0 && token.value() < vocab_size) return ok_status();
  return invalid_argument(fmt::format("{} has id {}; accepted are 0 to {}", what, token.value(), vocab_size - 1));
}

}  // namespace

Status check_chosen_ids(const Request& request, std::int64_t vocab_size) {
  for (const auto& [token, bias] : request.sampling.logit_bias)
    TRY(check_id("a token of logit_bias", token, vocab_size));
  for (const std::vector<TokenId>& word : request.sampling.bad_words)
    for (const TokenId token : word) TRY(check_id("a token of bad_words", token, vocab_size));
  for (const TokenId token : request.sampling.allowed_tokens) TRY(check_id("an allowed token", token, vocab_size));
  if (request.reasoning_limit)
    for (const TokenId token : request.reasoning_limit->closing_ids)
      TRY(check_id("a token that ends the reasoning", token, vocab_size));
  for (const TokenId token : request.stop.ids) TRY(check_id("a stop token", token, vocab_size));
  return ok_status();
}

Status check_prompt_ids(std::span<const TokenId> prompt, std::int64_t vocab_size) {
  if (prompt.empty()) return invalid_argument("the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::int32_t id = prompt[i].value();
    if (id < 0 || id >= vocab_size) return check_id(fmt::format("prompt token {}", i), prompt[i], vocab_size);
  }
  return ok_status();
}

}  // namespace tessera
