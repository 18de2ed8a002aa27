// Reads the grammar from the fields that constrain a request's output: OpenAI's response_format; SGLang's json_schema,
// regex and ebnf; vLLM's structured_outputs and its older guided_json, guided_regex, guided_grammar and guided_choice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/server/fields/api_fields.h"

namespace tessera {

struct OutputGrammar {
  GrammarSpec spec;
  std::string param;                 // the field that asked for the grammar
  std::vector<std::string> tools{};  // the names of the tools whose parameters the grammar has, in its order
  bool list_of_calls = false;        // a list of calls of `tools`, and not the parameters of a single one
};

// Returns the message for a grammar that cannot be compiled, which names the field and the tool. `message` is the
// compiler's.
std::string grammar_error(const OutputGrammar& grammar, std::string message);

// Reads the fields. Returns nothing if the text is unconstrained. Errors: 400 for more than one constraint, and for
// unknown members of structured_outputs unless `ignore_unknown`.
ApiResult<std::optional<OutputGrammar>> read_output_grammar(const ApiFields& fields, bool ignore_unknown);

}  // namespace tessera
