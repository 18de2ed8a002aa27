// GET over HTTP, behind the library that does it. Redirects are followed here rather than by the library: the token is
// sent to the origin (scheme, host, port) it belongs to and to no other, and https never leads to http.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct HubHttpOptions {
  std::string endpoint;   // "http[s]://host[:port][/path]": whose origin gets the token
  std::string token{};    // empty: none
  std::string ca_file{};  // empty: the system's
};

struct HttpReply {
  int status = 0;                                // of the last answer; 0: there was none
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string broken{};                          // why the connection ended before the answer did; empty: it did not

  // null where there is none.
  const std::string* header(const std::string& name) const;
  bool succeeded() const { return broken.empty() && status >= 200 && status < 300; }
  // Whether the same request may succeed later.
  bool is_temporary() const;
};

// Takes a successful answer's body. An error ends the transfer and is what get() returns.
struct HttpSink {
  std::function<Status(const HttpReply&)> begin;  // status and headers are there; called for an empty body too
  std::function<Status(std::string_view)> write;
};

// One connection after another, by one thread at a time.
class HttpClient {
 public:
  // invalid_argument for an endpoint or a token that cannot be used.
  static Result<HttpClient> create(HubHttpOptions options);
  HttpClient(HttpClient&&) noexcept;
  ~HttpClient();

  // From byte `offset` of the content on (the server may ignore that: see status 206 and content-range). Errors are
  // those of the sink, redirects that cannot be followed, and certificates that cannot be trusted; a server that
  // refuses or cannot be reached is a reply.
  Result<HttpReply> get(const std::string& url, std::int64_t offset, const HttpSink& sink);

  const HubHttpOptions& options() const { return options_; }

 private:
  struct Handle;
  HttpClient(HubHttpOptions options, std::string origin, std::unique_ptr<Handle> handle);
  HubHttpOptions options_;
  std::string origin_;
  std::unique_ptr<Handle> handle_;
};

// `text` as one component of a URL's path.
std::string url_escaped(std::string_view text);

}  // namespace tessera
