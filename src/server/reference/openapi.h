// Makes the document at /openapi.json, which describes the server's routes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/http/router.h"
#include "tessera/server/reference/route_docs.h"

namespace tessera {

// A row of route_docs(), and the route that the row describes. The route is borrowed.
struct DocumentedRoute {
  RouteDoc doc;
  const Route* route;
};

// Pairs the rows of route_docs() with the routes. Errors: internal_error that names a route without a row, or a row
// without a route.
Result<std::vector<DocumentedRoute>> document_routes(std::span<const Route> routes);

// Returns an OpenAPI 3.1 document of the routes. A body's schema lists the accepted fields, with the types and ranges
// that request_fields.json states.
Json openapi_document(std::span<const DocumentedRoute> routes);

}  // namespace tessera
