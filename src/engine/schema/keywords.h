// Which keywords of JSON schema mean something to a grammar.
#pragma once

#include "tessera/base/json.h"

namespace tessera::schema {

// The "$ref" of a schema that is a reference and nothing else, or null. `alone`: what stands beside has no meaning.
const Json* lone_reference(const Json& schema, bool alone);
// Whether every value is of `schema`: it is true, or has no keyword but annotations ("title", "default", …) and words
// that the standard does not know.
bool says_nothing(const Json& schema);

}  // namespace tessera::schema
