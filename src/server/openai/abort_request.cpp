#include "tessera/server/openai/abort_request.h"

#include <optional>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/request_fields.h"

namespace tessera {

ApiResult<AbortRequest> read_abort(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kAbort, model.allow_unknown_fields));
  const std::optional<std::string> id = TRY(fields.string("rid"));
  const bool all = TRY(fields.boolean_or("abort_all", false));
  if (all) return AbortRequest();
  if (!id || id->empty()) return fields.wrong("rid", "the id of a request, or \"abort_all\": true");
  return AbortRequest{.id = *id};
}

}  // namespace tessera
