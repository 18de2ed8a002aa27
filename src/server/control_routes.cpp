#include "tessera/server/control_routes.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/server/openai/abort_request.h"

namespace tessera {
namespace {

void abort(const ControlParts& parts, Call call) {
  parts.reader.read<AbortRequest>(std::move(call), read_abort,
                                  [&jobs = parts.jobs](const Call& asked, ApiResult<AbortRequest> request) {
                                    if (!request.ok()) return asked.refuse(request.error());
                                    asked.respond_json(fmt::format("{{\"aborted\": {}}}", jobs.abort(request->id)));
                                  });
}

void flush_cache(const ControlParts& parts, Call call) {
  parts.replicas.forget_prefixes();
  if (parts.model.spans) parts.model.spans->clear();
  parts.ask_engine(std::move(call), [](Engine&) {
    return HttpResponse{.content_type = "text/plain; charset=utf-8", .body = "Cache flushed.\n", .headers = {}};
  });
}

}  // namespace

void add_control_routes(Router& router, ControlParts parts) {
  const auto shared = std::make_shared<const ControlParts>(std::move(parts));
  const auto add = [&](const char* path, void (*answer)(const ControlParts&, Call), RouteAccess access) {
    router.add({"POST", path, [shared, answer](Call call) { answer(*shared, std::move(call)); }, access});
  };
  add("/flush_cache", flush_cache, RouteAccess::kAdmin);
  add("/abort_request", abort, RouteAccess::kAdmin);
}

}  // namespace tessera
