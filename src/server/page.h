// GET /: the page that people see in a browser, whole in one answer: a chat with the model and a live view of the
// engine. Its parts are in page/; the build puts them together.
#pragma once

#include "tessera/server/http/http.h"

namespace tessera {

// A content security policy in its headers lets a browser run the page's own script and talk to this server only: a
// model's output can neither run as script nor load anything.
HttpResponse page_response();

}  // namespace tessera
