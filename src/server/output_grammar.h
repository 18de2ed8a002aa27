// The grammar that a request asks for by any of the fields of constrained output: OpenAI's response_format, SGLang's
// json_schema, regex and ebnf, vLLM's guided_json, guided_regex and guided_grammar.
#pragma once

#include <optional>
#include <string>

#include "tessera/engine/grammar.h"
#include "tessera/server/api_fields.h"

namespace tessera {

struct OutputGrammar {
  GrammarSpec spec;
  std::string param;  // the field that asked for it
};

// None where the text is free. More than one way at once is refused.
ApiResult<std::optional<OutputGrammar>> read_output_grammar(const ApiFields& fields);

}  // namespace tessera
