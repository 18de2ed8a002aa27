// Handles the text of HTTP messages: parses a request's target, limits bodies, and writes heads and chunks. All
// functions are pure, except that a head contains the date, and that has_hung_up() asks the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/http/http.h"

namespace tessera {

bool equals_ignoring_case(std::string_view a, std::string_view b);
// Returns the text without the spaces and tabs at its ends.
std::string_view trimmed(std::string_view text);

struct RequestTarget {
  std::string path;       // percent-decoded
  std::string query;      // as sent
  std::string authority;  // "host:1" from "http://host:1/a"; it replaces the Host header
};

// Parses "/a%20b?c=d", "http://host" followed by such a path, or "*". Errors: another form, a bad escape, and a path
// that is not UTF-8.
Result<RequestTarget> parse_target(std::string_view target);

// Returns whether the connection was reset or both sides have closed it.
bool has_hung_up(int socket);

// Returns the maximum number of bytes in a body of this Content-Type.
std::size_t body_limit(const HttpOptions& options, std::string_view content_type);
// Returns the message for a body of more than `most` bytes.
std::string long_body(std::size_t most);

// The way in which a response's body ends.
struct BodyFraming {
  std::optional<std::size_t> length{};  // set if the length is known
  // Used only if the length is unknown. If true, a last chunk ends the body. Otherwise the end of the connection ends
  // it.
  bool chunked = false;
  bool keep_alive = true;
  std::int64_t keep_alive_s = 0;  // seconds for which an idle connection stays open; 0: not announced
};

// Returns the head with its empty line. `more` has further header lines with their line ends. Control characters in the
// response's headers are dropped, so no value can begin a new line.
std::string response_head(const HttpResponse& response, const BodyFraming& framing, std::string_view more);

// Appends one chunk of a chunked body. Precondition: `data` is not empty, because an empty chunk ends the body.
void append_body_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Returns the header lines that let a page of the request's origin read the answer, if `origins` contains that origin.
// Other pages get only "Vary: Origin". Returns "" if `origins` is empty or the request has no Origin header.
std::string cors_lines(const HttpRequest& request, const std::vector<std::string>& origins);
// is_preflight() returns whether the request is a CORS preflight, by which a browser asks what a page may send.
// preflight_lines() returns the header lines that answer a preflight.
bool is_preflight(const HttpRequest& request);
std::string preflight_lines(const HttpRequest& request);

}  // namespace tessera
