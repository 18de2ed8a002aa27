// Classifies the JSON schema keywords that matter to a grammar.
#pragma once

#include "tessera/base/json.h"

namespace tessera::schema {

// Returns the "$ref" of a schema that has no other constraints, and null for any other schema. If `alone` is set,
// keywords beside a "$ref" have no meaning, so every "$ref" is returned, whatever stands beside it.
const Json* lone_reference(const Json& schema, bool alone);
// Returns whether every value satisfies `schema`. It does if `schema` is true, or has only annotations ("title",
// "default", …) and keywords that JSON Schema does not define.
bool says_nothing(const Json& schema);

}  // namespace tessera::schema
