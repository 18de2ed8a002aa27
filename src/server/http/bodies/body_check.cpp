#include "tessera/server/http/bodies/body_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/json_fields.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/bodies/content_coding.h"
#include "tessera/server/http/bodies/multipart.h"
#include "tessera/server/http/http_message.h"

namespace tessera {
namespace {

HttpResponse unsupported(const HttpRequest& request, std::string message, std::string code) {
  return ApiError{.http_status = 415, .message = std::move(message), .param = {}, .code = std::move(code)}.to_response(
      error_shape_of(request.path));
}

std::optional<HttpResponse> check_json(const HttpRequest& request) {
  const std::string_view type = request.header("Content-Type");
  if (!type.empty() && !is_json_type(type)) {
    return unsupported(request,
                       fmt::format("the content type \"{}\" is not accepted; send JSON with the header \"Content-Type: "
                                   "application/json\" (curl: -H 'Content-Type: application/json')",
                                   clip_text(std::string(type))),
                       "unsupported_content_type");
  }
  const std::string_view coding = request.header("Content-Encoding");
  if (is_known_coding(coding)) return std::nullopt;
  HttpResponse response = unsupported(request,
                                      fmt::format("the content encoding \"{}\" is not accepted; {} are",
                                                  clip_text(std::string(coding)), kAcceptedCodings),
                                      "unsupported_content_encoding");
  response.headers.emplace_back("Accept-Encoding", kAcceptedCodings);
  return response;
}

std::optional<HttpResponse> check_form(const HttpRequest& request) {
  const std::string_view type = request.header("Content-Type");
  if (!is_form_type(type)) {
    return unsupported(request,
                       fmt::format("the content type \"{}\" is not accepted; send the file in a form with the header "
                                   "\"Content-Type: multipart/form-data\" (curl: -F file=@FILE)",
                                   clip_text(std::string(type))),
                       "unsupported_content_type");
  }
  const std::string_view coding = request.header("Content-Encoding");
  if (coding.empty() || equals_ignoring_case(coding, "identity")) return std::nullopt;
  return unsupported(request,
                     fmt::format("the content encoding \"{}\" is not accepted for a form; accepted: no encoding",
                                 clip_text(std::string(coding))),
                     "unsupported_content_encoding");
}

}  // namespace

bool is_json_type(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  if (equals_ignoring_case(type, "application/json")) return true;
  constexpr std::string_view kTree = "application/";
  constexpr std::string_view kSuffix = "+json";
  return type.size() > kTree.size() + kSuffix.size() && equals_ignoring_case(type.substr(0, kTree.size()), kTree) &&
         equals_ignoring_case(type.substr(type.size() - kSuffix.size()), kSuffix);
}

std::optional<HttpResponse> check_body(const HttpRequest& request, BodyType accepted) {
  if (!request.has_body) return std::nullopt;
  return accepted == BodyType::kForm ? check_form(request) : check_json(request);
}

}  // namespace tessera
