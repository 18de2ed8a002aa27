// JSON schemas to grammars.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::schema {

// The grammar, in xgrammar's EBNF, of JSON texts that a schema accepts. Every text of it is accepted by the schema;
// which of the schema's values have no text is said in grammar.h. `blank`: see blank_ebnf(); "": as json.dumps writes.
//
// invalid_argument where the schema is malformed, too deep, too large or accepts nothing; unimplemented where it is
// good and cannot be said exactly. The message names place and keyword once: "#/properties/a: \"contains\": …".
Result<std::string> compile_schema(std::string_view schema, std::string_view blank);

// An expression for `pattern`, a regular expression over blanks, tabs and line ends alone, in which repetitions without
// end stop at kMaxJsonWhitespace. invalid_argument for others.
Result<std::string> blank_ebnf(std::string_view pattern);

}  // namespace tessera::schema
