// Checks of a JSON schema before it is compiled to a grammar.
#pragma once

#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Ok where `schema` is JSON, is nested no deeper than kMaxGrammarDepth, and has none of the keywords that a grammar
// cannot hold an answer to ("not", "if", "uniqueItems", … and required properties that are not described:
// unimplemented). Errors name the place: "#/properties/a".
Status check_json_schema(std::string_view schema);

}  // namespace tessera
