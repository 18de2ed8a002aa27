// Describes every route for /openapi.json and /docs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

struct RouteDoc {
  std::string_view method;
  std::string_view route;    // the same text as Route::path
  std::string_view path;     // as clients write it: "/v1/models/{model}". A route may have several such paths
  std::string_view group;    // heading under which the route is shown
  std::string_view summary;  // one sentence
  // The media types of an answer with status 200, separated by blanks.
  std::string_view answers = "application/json";
  std::uint32_t fields = 0;  // set of objects (request_fields.h) whose fields a body may have; 0: no body is read
  // Parameters of the query, separated by blanks.
  std::string_view query{};  // NOLINT(readability-redundant-string-init): most rows end before it
};

// Returns the rows in the order in which they are shown.
std::span<const RouteDoc> route_docs();

}  // namespace tessera
