// Sends HTTP GET requests with libcurl. Redirects are followed here rather than by the library, so that the token is
// sent only to the origin (scheme, host, port) it belongs to, and https never redirects to http.
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
  std::string endpoint;   // "http[s]://host[:port][/path]"; only its origin gets the token
  std::string token{};    // empty: none
  std::string ca_file{};  // empty: the system's
};

struct HttpReply {
  int status = 0;                                // status of the last response; 0: no response
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string broken{};  // why the connection ended before the response was complete; empty: it is complete

  // Returns null if there is no such header.
  const std::string* header(const std::string& name) const;
  bool succeeded() const { return broken.empty() && status >= 200 && status < 300; }
  // Returns whether the same request may succeed later.
  bool is_temporary() const;
};

// Receives the body of a successful response. An error ends the transfer and is returned by get().
struct HttpSink {
  std::function<Status(const HttpReply&)> begin;  // called once status and headers are known, for an empty body too
  std::function<Status(std::string_view)> write;
};

// A client. One thread at a time may use it.
class HttpClient {
 public:
  // Makes a client. invalid_argument for an endpoint or a token that cannot be used.
  static Result<HttpClient> create(HubHttpOptions options);
  HttpClient(HttpClient&&) noexcept;
  ~HttpClient();

  // Gets the content from byte `offset` on (the server may ignore that: see status 206 and content-range). Errors are
  // those of the sink, refused redirects, and untrusted certificates. A server that refuses or cannot be reached is a
  // reply, not an error.
  Result<HttpReply> get(const std::string& url, std::int64_t offset, const HttpSink& sink);

  const HubHttpOptions& options() const { return options_; }

 private:
  struct Handle;
  HttpClient(HubHttpOptions options, std::string origin, std::unique_ptr<Handle> handle);
  HubHttpOptions options_;
  std::string origin_;
  std::unique_ptr<Handle> handle_;
};

// Returns the system's file of trusted certificates, for distributions that have it elsewhere than libcurl was built
// for; "" if there is none.
std::string system_ca_file();

// Returns `text` escaped as one component of a URL's path.
std::string url_escaped(std::string_view text);

}  // namespace tessera
