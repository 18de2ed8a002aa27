#include "tessera/server/reference/reference_page.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

constexpr std::string_view kReferenceHead = R"_(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tessera: routes</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
dt { margin-top: .75rem; }
dd { margin: 0; }
</style>
<h1>Routes</h1>
<p><a href="openapi.json">openapi.json</a> is this list as an OpenAPI document, with the errors of each route.</p>
)_";

// Appends a route. All texts are constants of this program without characters that HTML reserves, so they need no
// escapes.
void append_route(std::string& html, const DocumentedRoute& documented) {
  const RouteDoc& doc = documented.doc;
  std::string_view access;
  if (documented.route->access == RouteAccess::kOpen) access = " Needs no key.";
  if (documented.route->access == RouteAccess::kAdmin) access = " Needs an administrator's key, if there is one.";
  html += fmt::format("<dt><code>{} {}</code></dt>\n<dd>{}{}", doc.method, doc.path, doc.summary, access);
  if (!doc.query.empty()) html += fmt::format(" Query: <code>{}</code>.", doc.query);
  if (doc.fields != 0) {
    html += "\n<details><summary>Fields</summary><code>";
    std::string_view gap;
    for (const AcceptedField& field : accepted_fields(doc.fields)) {
      html += fmt::format("{}{}", std::exchange(gap, " "), field.name);
    }
    html += "</code></details>";
  }
  html += "</dd>\n";
}

}  // namespace

HttpResponse reference_page(std::span<const DocumentedRoute> routes) {
  std::string html(kReferenceHead);
  std::string_view group;
  for (const DocumentedRoute& documented : routes) {
    if (documented.doc.group != group) {
      if (!group.empty()) html += "</dl>\n";
      group = documented.doc.group;
      html += fmt::format("<h2>{}</h2>\n<dl>\n", group);
    }
    append_route(html, documented);
  }
  html += "</dl>\n</html>\n";
  return {.content_type = "text/html; charset=utf-8",
          .body = std::move(html),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace tessera
