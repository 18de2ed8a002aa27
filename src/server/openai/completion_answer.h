// The answer to /v1/completions: one object with all choices, or a stream. Each chunk of a stream has new output of one
// choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/usage.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct CompletionStyle {
  std::string id;
  std::string model;
  std::string fingerprint{};  // the value of ServedModel::fingerprint
  StreamFields stream{};
  int n = 1;  // number of choices per prompt; choice c of prompt p has the index p · n + c
  bool logprobs = false;
  bool graph_info = false;
  bool echo_logprobs = false;    // log-probabilities of the prompt precede those of the output
  bool tokens_as_ids = false;    // log-probabilities name tokens by their ids
  bool prompt_logprobs = false;  // choices have "prompt_logprobs"; not with a stream
  bool hidden_states = false;    // choices have the last row of "hidden_states"; not with a stream
  // Choices have "token_ids". In a stream, these are the ids of the chunk, and every token has a chunk of its own.
  bool token_ids = false;
  std::vector<std::string> echo{};            // for each prompt, the text before the output; empty: no echo
  std::vector<std::int64_t> prompt_tokens{};  // the length of each prompt
  std::int64_t hidden_size = 0;
  const Tokenizer* tokenizer = nullptr;  // borrowed
};

std::unique_ptr<Answer> make_completion_answer(CompletionStyle style);

}  // namespace tessera
