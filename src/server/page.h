// Handles GET / with a page for browsers: a chat with the model and a live view of the engine. The build assembles the
// page from the files in page/ into one response.
#pragma once

#include "tessera/server/http/http.h"

namespace tessera {

// Returns the page. A content security policy in its headers lets a browser run only the page's own script and connect
// only to this server. A model's output can therefore neither run as script nor load anything.
HttpResponse page_response();

}  // namespace tessera
