// Reads the fields for sampling and stopping, under the names that OpenAI, vLLM and SGLang give them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/served_model.h"
#include "tessera/server/tools/output_grammar.h"

namespace tessera {

inline constexpr int kMaxChoices = 128;  // the largest n

struct OutputFields {
  SamplingParams sampling{};  // always has a seed, which all choices share
  StopConditions stop{};      // max_new_tokens is set later, from the field below
  std::optional<std::int64_t> max_new_tokens{};
  int n = 1;
  std::optional<OutputGrammar> grammar{};
  bool skip_special_tokens = true;
  std::int64_t priority = 0;
  double timeout_s = 0;
  RetentionHint retention{};
  bool return_graph_info = false;
};

// Reads the fields. A field that the request leaves out gets its value from the model's generation_config.json, or else
// OpenAI's default.
ApiResult<OutputFields> read_output_fields(const ApiFields& fields, const ServedModel& model);

// Returns the 400 for a request that asks for no tokens. The error names the field whose value is 0.
ApiError no_tokens_asked(const ApiFields& fields, std::string_view accepted);

// Checks "metadata" against OpenAI's limits: at most 16 members, each with a string as its value, and with bounded
// lengths of keys and values. Does not store the field.
ApiStatus check_metadata(const ApiFields& fields);
// Checks the field `key`, an object that clients of other protocols attach to requests. The object has no effect. It
// may have at most 64 members and 16 KiB of JSON text.
ApiStatus check_attached(const ApiFields& fields, std::string_view key);

// Returns the compiled grammar; null if none is wanted. Errors: `output` also names allowed tokens, the server cannot
// constrain output, or the grammar cannot be compiled.
ApiResult<std::shared_ptr<const Grammar>> compile_grammar(const std::optional<OutputGrammar>& grammar,
                                                          const OutputFields& output, const ServedModel& model);

// Returns the answer's id: `prefix` followed by the field request_id, or the field rid unchanged. If the request has
// neither field, returns a new id.
ApiResult<std::string> read_answer_id(const ApiFields& fields, std::string_view prefix);

// The fields prompt_logprobs, return_hidden_states (true or "last") and return_tokens_as_token_ids of OpenAI's routes.
struct TokenExtras {
  std::optional<int> prompt_logprobs{};
  bool hidden_states = false;
  bool tokens_as_ids = false;
};
ApiResult<TokenExtras> read_token_extras(const ApiFields& fields, bool stream);

// Returns how many token ids a request holds besides its prompt.
std::int64_t ids_of_parameters(const OutputFields& output);

// Appends the n requests of one prompt to `requests`.
void append_choices(const OutputFields& output, const Request& request, std::vector<Request>& requests);

}  // namespace tessera
