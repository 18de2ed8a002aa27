#include "tessera/server/http/api_error.h"

#include "tessera/base/json.h"

namespace tessera {
namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string ApiError::to_json() const {
  Json error = Json::object();
  error.set("message", message);
  error.set("type", type);
  error.set("param", or_null(param));
  error.set("code", or_null(code));
  Json body = Json::object();
  body.set("error", std::move(error));
  return body.dump();
}

HttpResponse ApiError::to_response() const {
  HttpResponse response{.status = http_status, .body = to_json(), .headers = {}};
  if (retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  return response;
}

ApiError api_error(const Status& status, std::string param) {
  ApiError error{.message = status.message(), .param = std::move(param), .code = {}};
  switch (status.code()) {
    case StatusCode::kInvalidArgument: error.http_status = 400; break;
    case StatusCode::kNotFound: error.http_status = 404; break;
    case StatusCode::kResourceExhausted:
      error.http_status = 429;
      error.type = "rate_limit_error";
      error.retry_after_s = 1;
      break;
    case StatusCode::kUnimplemented: error.http_status = 501; break;
    case StatusCode::kDeviceLost: error.http_status = 503; break;
    default: error.http_status = 500; break;
  }
  if (error.http_status >= 500) error.type = "server_error";
  return error;
}

}  // namespace tessera
