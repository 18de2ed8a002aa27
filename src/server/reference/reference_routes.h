// The routes /openapi.json and /docs, which describe all routes.
#pragma once

#include "tessera/base/status.h"
#include "tessera/server/http/router.h"

namespace tessera {

// Adds both routes. Call it after all other routes were added. Errors: as for document_routes().
Status add_reference_routes(Router& router);

}  // namespace tessera
