// Compiles JSON schemas to grammars.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::schema {

// Returns a grammar, in xgrammar's EBNF, for JSON texts that a schema accepts. The schema accepts every text of the
// grammar. grammar.h lists the values that the schema accepts but the grammar never generates. `blank` is an expression
// from blank_ebnf() for the white space between the tokens of a text. If it is empty, texts are written as json.dumps
// writes them.
//
// Returns invalid_argument if the schema is malformed, too deep, too large or accepts nothing. Returns unimplemented if
// the schema is valid but has no exact grammar. The message names the place and the keyword once:
// "#/properties/a: \"contains\": …".
Result<std::string> compile_schema(std::string_view schema, std::string_view blank);

// Returns an EBNF expression for `pattern`, a regular expression that matches only blanks, tabs and line ends. Every
// count of a repetition, lower or upper, is limited to kMaxJsonWhitespace. An unbounded repetition stops at that count.
// Returns invalid_argument for other patterns.
Result<std::string> blank_ebnf(std::string_view pattern);

}  // namespace tessera::schema
