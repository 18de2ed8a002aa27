// Sampling and stop fields that OpenAI's, vLLM's and SGLang's requests share, under each one's names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/openai/output_grammar.h"
#include "tessera/server/served_model.h"

namespace tessera {

inline constexpr int kMaxChoices = 128;  // n

struct OutputFields {
  SamplingParams sampling{};  // with a seed, so that all choices share one
  StopConditions stop{};      // max_new_tokens is to be set from the one below
  std::optional<std::int64_t> max_new_tokens{};
  int n = 1;
  std::optional<OutputGrammar> grammar{};
  bool skip_special_tokens = true;
  std::int64_t priority = 0;
  double timeout_s = 0;
  bool return_graph_info = false;
};

// A field that the request leaves out comes from the model's generation_config.json, then from OpenAI's defaults.
ApiResult<OutputFields> read_output_fields(const ApiFields& fields, const ServedModel& model);

// 400 for a request that asks for no tokens: names the field that says 0.
ApiError no_tokens_asked(const ApiFields& fields, std::string_view accepted);

// "metadata": at most 16 pairs of texts, as at OpenAI. It is kept nowhere.
ApiStatus check_metadata(const ApiFields& fields);

// The compiled grammar; null where none is wanted. Refused where `output` names allowed tokens.
ApiResult<std::shared_ptr<const Grammar>> compile_grammar(const std::optional<OutputGrammar>& grammar,
                                                          const OutputFields& output, const ServedModel& model);

// The answer's id: the one that request_id (behind `prefix`) or rid (as it is) asks for, or a new one.
ApiResult<std::string> read_answer_id(const ApiFields& fields, std::string_view prefix);

// prompt_logprobs, return_hidden_states (true or "last") and return_tokens_as_token_ids of OpenAI's routes.
struct TokenExtras {
  std::optional<int> prompt_logprobs{};
  bool hidden_states = false;
  bool tokens_as_ids = false;
};
ApiResult<TokenExtras> read_token_extras(const ApiFields& fields, bool stream);

// How many token ids a request holds beside its prompt.
std::int64_t ids_of_parameters(const OutputFields& output);

// Appends the n requests of one prompt.
void append_choices(const OutputFields& output, const Request& request, std::vector<Request>& requests);

}  // namespace tessera
