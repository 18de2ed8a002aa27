#include "tessera/server/control_routes.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/http/client_of.h"
#include "tessera/server/openai/abort_request.h"
#include "tessera/server/openai/close_session.h"

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

// Each engine releases the session between two steps, before it accepts any later request.
void close_session(const ControlParts& parts, Call call) {
  parts.reader.read<CloseSession>(
      std::move(call), read_close_session, [&parts](const Call& asked, ApiResult<CloseSession> request) {
        if (!request.ok()) return asked.refuse(request.error());
        const std::string session = session_of(owner_of(asked.request(), parts.keys), request->session);
        parts.replicas.post_to_all([session](Engine& engine) { engine.release_session(session); });
        asked.respond_json("");
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
  add("/close_session", close_session, RouteAccess::kClient);
}

}  // namespace tessera
