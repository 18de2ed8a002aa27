// The answer to /v1/chat/completions: one object with all choices, or a stream. Each chunk of a stream has new output
// of one choice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/chat_text.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct ChatStyle {
  std::string id;
  std::string model;
  std::string fingerprint{};  // the value of ServedModel::fingerprint
  StreamFields stream{};
  int n = 1;
  bool logprobs = false;
  bool graph_info = false;
  bool include_reasoning = true;  // false: reasoning is left out of the answer
  bool tokens_as_ids = false;     // log-probabilities name tokens by their ids
  std::int64_t prompt_tokens = 0;
  std::int64_t image_tokens = 0;  // the part of prompt_tokens that images take
  ChatTextStyle text{};
  std::string echo{};  // text at the beginning of each choice's content
  // Only for an answer that is not streamed:
  bool prompt_logprobs = false;              // the answer has the prompt's log-probabilities, from the first choice
  bool hidden_states = false;                // each choice has the last row of its hidden states
  bool token_ids = false;                    // each choice has its output ids, and the answer has the prompt's ids
  bool choices_have_prompt_ids = false;      // each choice has the prompt's ids
  std::vector<TokenId> prompt_ids{};         // set if token_ids or choices_have_prompt_ids
  std::optional<std::string> prompt_text{};  // if set, the answer shows the prompt's text
  std::int64_t hidden_size = 0;
  const Tokenizer* tokenizer = nullptr;  // borrowed
};

std::unique_ptr<Answer> make_chat_answer(ChatStyle style);

}  // namespace tessera
