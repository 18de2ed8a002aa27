// An error of the HTTP interface, and its body in the shape that each protocol's clients expect. The members `type` and
// `code` have OpenAI's values. In Anthropic's shape, the error type follows from the HTTP status instead.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/server/http/error_shape.h"
#include "tessera/server/http/http.h"

namespace tessera {

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;      // the field at fault; "" is sent as null
  std::string code;       // "" is sent as null
  int retry_after_s = 0;  // value of the Retry-After header in seconds; 0: no header

  // Returns the body, one line of JSON. Anthropic's shape contains a new request id.
  std::string to_json(ErrorShape shape = ErrorShape::kOpenAi) const;
  HttpResponse to_response(ErrorShape shape = ErrorShape::kOpenAi) const;
};

// Maps the status code to an HTTP status: invalid argument 400, not found 404, unimplemented 501, resource exhausted
// 429 with Retry-After, device lost 503, every other code 500.
ApiError api_error(const Status& status, std::string param = {});

}  // namespace tessera
