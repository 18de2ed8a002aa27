// The page at /docs, which lists the routes.
#pragma once

#include <span>

#include "tessera/server/http/http.h"
#include "tessera/server/reference/openapi.h"

namespace tessera {

// Returns an HTML page that has no scripts and loads no other files.
HttpResponse reference_page(std::span<const DocumentedRoute> routes);

}  // namespace tessera
