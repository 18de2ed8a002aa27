#include "tessera/server/http/http_message.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <iterator>

#include "tessera/server/http/bodies/multipart.h"
#include "tessera/server/http/http_guard.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "";  // the reason phrase is optional
  }
}

// Returns a header's name or value without the characters that must not be sent.
std::string printable(std::string_view text) {
  std::string kept;
  std::copy_if(text.begin(), text.end(), std::back_inserter(kept),
               [](char c) { return (c >= ' ' || c < 0) && c != '\x7f'; });
  return kept;
}

}  // namespace

bool has_hung_up(int socket) {
  pollfd state{.fd = socket, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

std::size_t body_limit(const HttpOptions& options, std::string_view content_type) {
  return is_form_type(content_type) ? std::max(options.max_body_bytes, options.max_form_bytes) : options.max_body_bytes;
}

std::string long_body(std::size_t most) { return fmt::format("the request's body is longer than {} bytes", most); }

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

Result<RequestTarget> parse_target(std::string_view target) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(
        fmt::format("the request target '{}' {}", replace_invalid_utf8(target.substr(0, 100)), why));
  };
  RequestTarget parsed;
  std::string_view rest = target;
  if (const std::size_t scheme = rest.find("://"); scheme != std::string_view::npos && rest.front() != '/') {
    const std::size_t path = std::min(rest.find_first_of("/?", scheme + 3), rest.size());
    parsed.authority = rest.substr(scheme + 3, path - scheme - 3);
    rest = path == rest.size() ? "/" : rest.substr(path);
  }
  if (rest != "*" && !rest.starts_with('/') && !rest.starts_with('?')) return refuse("does not start with '/'");

  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) parsed.query = rest.substr(question + 1);
  const std::string_view path = rest.substr(0, question);
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      parsed.path += path[i];
      continue;
    }
    const int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(path[i + 2]) : -1;
    if (low < 0) return refuse("has a '%' without two hexadecimal digits");
    parsed.path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (parsed.path.empty()) parsed.path = "/";
  if (find_invalid_utf8(parsed.path) != std::string::npos) return refuse("has a path that is not UTF-8");
  return parsed;
}

std::string response_head(const HttpResponse& response, const BodyFraming& framing, std::string_view more) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", response.status,
                                 reason_phrase(response.status), fmt::gmtime(std::time(nullptr)));
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (response.status != 204) {
    add("Content-Type", printable(response.content_type));
    if (framing.length) add("Content-Length", std::to_string(*framing.length));
    if (framing.chunked) add("Transfer-Encoding", "chunked");
  }
  add("Connection", framing.keep_alive ? "keep-alive" : "close");
  if (framing.keep_alive && framing.keep_alive_s > 0)
    add("Keep-Alive", fmt::format("timeout={}", framing.keep_alive_s));
  for (const auto& [name, value] : response.headers) add(printable(name), printable(value));
  head.append(more).append("\r\n");
  return head;
}

void append_body_chunk(std::string& out, std::string_view data) {
  std::array<char, 2 * sizeof(std::size_t)> size{};
  const auto [end, error] = std::to_chars(size.begin(), size.end(), data.size(), 16);
  out.append(size.begin(), end).append("\r\n").append(data).append("\r\n");
}

std::string cors_lines(const HttpRequest& request, const std::vector<std::string>& origins) {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || origins.empty()) return {};
  if (std::find(origins.begin(), origins.end(), "*") != origins.end()) return "Access-Control-Allow-Origin: *\r\n";
  // Refusals depend on the origin too, so caches must keep an answer for each origin.
  std::string lines = "Vary: Origin\r\n";
  if (is_named_origin(origin, origins)) lines += fmt::format("Access-Control-Allow-Origin: {}\r\n", origin);
  return lines;
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

std::string preflight_lines(const HttpRequest& request) {
  const std::string asked = printable(request.header("Access-Control-Request-Headers"));
  return fmt::format(
      "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE, OPTIONS\r\n"
      "Access-Control-Allow-Headers: {}\r\n"
      "Access-Control-Max-Age: 600\r\n",
      asked.empty() ? "Authorization, Content-Type" : asked);
}

}  // namespace tessera
