// The page at /docs, which lists the routes.
#pragma once

#include <span>

#include "tessera/server/http/http.h"
#include "tessera/server/reference/openapi.h"

namespace tessera {

// Returns a page without scripts that loads nothing.
HttpResponse reference_page(std::span<const DocumentedRoute> routes);

}  // namespace tessera
