// Handles GET /, the page for a browser: a chat with the model and a live view of the engine, in one answer. The build
// assembles it from the parts in page/.
#pragma once

#include "tessera/server/http/http.h"

namespace tessera {

// Returns the page. A content security policy in its headers lets a browser run only the page's own script and connect
// only to this server. A model's output can therefore neither run as script nor load anything.
HttpResponse page_response();

}  // namespace tessera
