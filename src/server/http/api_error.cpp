#include "tessera/server/http/api_error.h"

#include <string_view>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/server/http/random_id.h"

namespace tessera {
namespace {

std::string make_request_id() { return make_id("req_"); }

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string openai_json(const ApiError& of) {
  Json error = Json::object();
  error.set("message", of.message);
  error.set("type", of.type);
  error.set("param", or_null(of.param));
  error.set("code", or_null(of.code));
  Json body = Json::object();
  body.set("error", std::move(error));
  return body.dump();
}

std::string_view anthropic_type(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    default: return http_status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string anthropic_json(const ApiError& of, const std::string& request_id) {
  Json error = Json::object();
  error.set("type", anthropic_type(of.http_status));
  error.set("message", of.message);
  Json body = Json::object();
  body.set("type", "error");
  body.set("error", std::move(error));
  body.set("request_id", request_id);
  return body.dump();
}

}  // namespace

std::string ApiError::to_json(ErrorShape shape) const {
  switch (shape) {
    case ErrorShape::kAnthropic: return anthropic_json(*this, make_request_id());
    case ErrorShape::kOllama: return Json::object({{"error", message}}).dump();
    case ErrorShape::kOpenAi: break;
  }
  return openai_json(*this);
}

HttpResponse ApiError::to_response(ErrorShape shape) const {
  HttpResponse response{.status = http_status, .headers = {}};
  if (shape == ErrorShape::kAnthropic) {
    const std::string id = make_request_id();
    response.body = anthropic_json(*this, id);
    response.headers.emplace_back(kRequestIdHeader, id);
  } else {
    response.body = to_json(shape);
  }
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
