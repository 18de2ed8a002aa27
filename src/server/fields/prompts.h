// The prompts of a request: a text, several texts, a list of ids, or several lists of ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct Prompts {
  std::vector<std::vector<TokenId>> ids;
  bool batch = false;  // the request gave a list of prompts, possibly of one prompt
};

// Reads the field `key`. Its value is a string, a list of strings, a list of ids, or a list of lists of ids. A list
// must not be empty. With `add_special_tokens`, texts get the tokens that the tokenizer adds around them.
ApiResult<Prompts> read_prompts(const ApiFields& fields, std::string_view key, const ServedModel& model,
                                bool add_special_tokens);

// vLLM's truncate_prompt_tokens and truncation_side. If a prompt is too long, they say which part of it is kept.
struct Truncation {
  std::optional<std::int64_t> most{};  // maximum number of tokens to keep; unset: all are kept
  bool keeps_first = false;            // keeps the first tokens instead of the last
  void apply(std::vector<TokenId>& prompt) const;
};
// Reads the fields. If truncate_prompt_tokens is -1, the prompt is cut so that the context has room for `asked` output
// tokens, or for one output token if `asked` is unset.
ApiResult<Truncation> read_truncation(const ApiFields& fields, const ServedModel& model,
                                      std::optional<std::int64_t> asked);

// Limits the engine requests and tokens of one HTTP request.
class FanOut {
 public:
  // Adds n requests of one prompt. `ids` is the number of token ids in one request: those of its prompt and those in
  // its parameters. Returns a 400 if the requests so far, or their ids, exceed the limits of one HTTP request.
  ApiStatus add(int n, std::int64_t ids, const std::string& param);

 private:
  std::int64_t requests_ = 0;
  std::int64_t ids_ = 0;
};

}  // namespace tessera
