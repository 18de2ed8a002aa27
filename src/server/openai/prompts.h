// Prompts of a request: a text, or several, or ids, or several lists of them.
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
  bool batch = false;  // the request gave a list of prompts, even a list of one
};

// Of `key`: a string, a list of strings, a list of ids or a list of lists of ids; not empty. Texts get the tokens that
// the tokenizer puts around them where `add_special_tokens`.
ApiResult<Prompts> read_prompts(const ApiFields& fields, std::string_view key, const ServedModel& model,
                                bool add_special_tokens);

// vLLM's truncate_prompt_tokens and truncation_side: what is kept of a prompt that is longer.
struct Truncation {
  std::optional<std::int64_t> most{};  // tokens; none: all
  bool keeps_first = false;            // and not the last ones
  void apply(std::vector<TokenId>& prompt) const;
};
// `asked`: how many tokens are to follow; -1 leaves room in the context for them, or for one.
ApiResult<Truncation> read_truncation(const ApiFields& fields, const ServedModel& model,
                                      std::optional<std::int64_t> asked);

// Counts what one HTTP request comes to.
class FanOut {
 public:
  // n requests of one prompt, each of which holds `ids` tokens: the prompt's and those of its parameters. 400 where the
  // requests so far, or their tokens, are more than one HTTP request may ask for.
  ApiStatus add(int n, std::int64_t ids, const std::string& param);

 private:
  std::int64_t requests_ = 0;
  std::int64_t ids_ = 0;
};

}  // namespace tessera
