// The text of HTTP messages: what a request's target says, and the heads and chunks that we write.
// All functions are pure, but for the date in a head.
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

struct RequestTarget {
  std::string path;       // percent-decoded
  std::string query;      // as sent
  std::string authority;  // of "http://host:1/a": "host:1", which counts instead of the Host header
};

// "/a%20b?c=d", the same behind "http://host", or "*". Errors: another form, a bad escape, a path that is no UTF-8.
Result<RequestTarget> parse_target(std::string_view target);

// How a response's body ends.
struct BodyFraming {
  std::optional<std::size_t> length{};  // known
  bool chunked = false;                 // where no length is known: by a last chunk, else by the connection's end
  bool keep_alive = true;
  std::int64_t keep_alive_s = 0;  // that the client may count on; 0: it is not told
};

// The head, with the empty line behind it. `more` has header lines, each with its line end. Control characters in the
// response's headers are left out, so that no value can begin a line of its own.
std::string response_head(const HttpResponse& response, const BodyFraming& framing, std::string_view more);

// Appends one chunk of a chunked body. Precondition: `data` is not empty, which would end the body.
void append_body_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Header lines that let a page of the request's origin read the answer; empty where `origins` does not name it.
std::string cors_lines(const HttpRequest& request, const std::vector<std::string>& origins);
// Whether a browser asks what it may send, and the lines that answer it.
bool is_preflight(const HttpRequest& request);
std::string preflight_lines(const HttpRequest& request);

}  // namespace tessera
