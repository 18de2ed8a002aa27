// Sends HTTP GET requests with libcurl. The client follows redirects itself instead of leaving them to libcurl. It can
// therefore send the token only to the endpoint's origin (scheme, host, port), and refuse a redirect from https to
// http.
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
  std::string endpoint;   // "http[s]://host[:port][/path]"; only this origin gets the token
  std::string token{};    // may be empty
  std::string ca_file{};  // file of trusted certificates; empty for the system's file
};

struct HttpReply {
  int status = 0;                                // status of the last response; 0 if there was no response
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string broken{};  // why the connection ended before the response was complete; empty if it is complete

  // Returns the value of a header; null if the reply does not have it.
  const std::string* header(const std::string& name) const;
  bool succeeded() const { return broken.empty() && status >= 200 && status < 300; }
  // Returns whether the request failed but may succeed later.
  bool is_temporary() const;
};

// Receives the body of a successful response. An error of either function ends the transfer, and get() returns it.
struct HttpSink {
  std::function<Status(const HttpReply&)> begin;  // called when status and headers are known, even if the body is empty
  std::function<Status(std::string_view)> write;
};

// An HTTP client. Only one thread at a time may use it.
class HttpClient {
 public:
  // Creates a client. Returns invalid_argument for a malformed endpoint or token.
  static Result<HttpClient> create(HubHttpOptions options);
  HttpClient(HttpClient&&) noexcept;
  ~HttpClient();

  // Requests the content from byte `offset` to the end. The server may send the whole content instead. If a reply
  // begins at the offset, it has status 206 and the header content-range. Returns an error if the sink fails, if this
  // client refuses a redirect, or if a certificate is not trusted. If the server answers with an error status or cannot
  // be reached, the result is a reply and not an error.
  Result<HttpReply> get(const std::string& url, std::int64_t offset, const HttpSink& sink);

  const HubHttpOptions& options() const { return options_; }

 private:
  struct Handle;
  HttpClient(HubHttpOptions options, std::string origin, std::unique_ptr<Handle> handle);
  HubHttpOptions options_;
  std::string origin_;
  std::unique_ptr<Handle> handle_;
};

// Returns the path of the system's trusted certificates; "" if none is found. The path is needed on distributions that
// keep their certificates elsewhere than at the path that was built into libcurl.
std::string system_ca_file();

// Returns `text` escaped as one component of a URL's path.
std::string url_escaped(std::string_view text);

}  // namespace tessera
