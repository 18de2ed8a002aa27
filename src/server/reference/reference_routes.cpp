#include "tessera/server/reference/reference_routes.h"

#include <memory>
#include <string>
#include <vector>

#include "tessera/server/reference/openapi.h"
#include "tessera/server/reference/reference_page.h"

namespace tessera {
namespace {

struct Reference {
  std::string document;
  HttpResponse page;
};

}  // namespace

Status add_reference_routes(Router& router) {
  // The document and the page also describe these two routes, so both are made after the routes have been added.
  const auto reference = std::make_shared<Reference>();
  router.add({"GET", "/openapi.json", [reference](const Call& call) { call.respond_json(reference->document); },
              RouteAccess::kOpen});
  router.add({"GET", "/docs", [reference](const Call& call) { call.respond(reference->page); }, RouteAccess::kOpen});
  const std::vector<DocumentedRoute> routes = TRY(document_routes(router.routes()));
  reference->document = openapi_document(routes).dump();
  reference->page = reference_page(routes);
  return ok_status();
}

}  // namespace tessera
