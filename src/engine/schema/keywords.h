// Classifies the keywords of JSON schema that mean something to a grammar.
#pragma once

#include "tessera/base/json.h"

namespace tessera::schema {

// Returns the "$ref" of a schema that is only a reference, or null. `alone`: keywords beside the "$ref" have no
// meaning.
const Json* lone_reference(const Json& schema, bool alone);
// Returns whether every value satisfies `schema`: it is true, or has only annotations ("title", "default", …) and
// keywords that the standard does not define.
bool says_nothing(const Json& schema);

}  // namespace tessera::schema
