// Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}} with an HTTP status.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/server/http/http.h"

namespace tessera {

struct ApiError {
  int http_status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;      // the field at fault; "": null
  std::string code;       // "": null
  int retry_after_s = 0;  // of the Retry-After header; 0: none

  // The body, one line.
  std::string to_json() const;
  HttpResponse to_response() const;
};

// By code: an invalid argument is 400, not found 404, unimplemented 501, exhausted 429 with Retry-After, a lost device
// 503, all else 500.
ApiError api_error(const Status& status, std::string param = {});

}  // namespace tessera
