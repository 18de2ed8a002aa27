// The messages of a chat request, checked and brought into the form that chat templates expect.
#pragma once

#include "tessera/base/json.h"
#include "tessera/server/api_fields.h"

namespace tessera {

// A list of {"role", "content", …}: contents are strings (text parts are joined by line breaks), the arguments of tool
// calls objects. `knows_developer`: the template has a role "developer"; otherwise those messages are the system's.
ApiResult<Json> read_messages(const ApiFields& body, bool knows_developer);

}  // namespace tessera
