#include "tessera/server/openai/close_session.h"

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/fields/retention_fields.h"

namespace tessera {

ApiResult<CloseSession> read_close_session(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kCloseSession, model.allow_unknown_fields));
  return CloseSession{.session = TRY(read_session(fields))};
}

}  // namespace tessera
