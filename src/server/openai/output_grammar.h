// The grammar that a request asks for by any of the fields of constrained output: OpenAI's response_format, SGLang's
// json_schema, regex and ebnf, vLLM's structured_outputs and its earlier guided_json, guided_regex, guided_grammar and
// guided_choice.
#pragma once

#include <optional>
#include <string>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/server/fields/api_fields.h"

namespace tessera {

struct OutputGrammar {
  GrammarSpec spec;
  std::string param;  // the field that asked for it
};

// None where the text is free. More than one way at once is refused, and so are members of structured_outputs that are
// not known, unless they are to be ignored.
ApiResult<std::optional<OutputGrammar>> read_output_grammar(const ApiFields& fields, bool ignore_unknown);

}  // namespace tessera
