// Fetches a client's URL without giving the client access to the server's own network: only http and https, only public
// addresses (public_address.h), no proxy, no credentials. It uses libcurl.
//
// The address is checked each time a connection is made, also for redirects, and the connection goes to exactly this
// address. A client therefore cannot pass the check by a redirect, or by a name that soon resolves to another address.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/server/http/public_address.h"

namespace tessera {

struct UrlFetchOptions {
  std::int64_t most_bytes = std::int64_t{64} << 20;  // maximum number of bytes in a body
  double timeout_s = 10;                             // limit from the call to the last byte, including all redirects
  int most_redirects = 5;
  int most_at_once = 8;  // maximum number of simultaneous fetches; more are refused
  // Decides which addresses may be connected to. Default: public addresses, except this machine's own.
  std::function<bool(const sockaddr&)> may_connect = [](const sockaddr& address) {
    return is_public_address(address) && !is_own_address(address);
  };
};

// Threads: several threads may call get() at the same time.
class UrlFetcher {
 public:
  static Result<UrlFetcher> create(UrlFetchOptions options);
  UrlFetcher(UrlFetcher&&) noexcept;
  UrlFetcher& operator=(UrlFetcher&&) noexcept;
  ~UrlFetcher();

  // Returns the body at `url`. Blocks. Returns invalid_argument if the URL may not be fetched, if the server does not
  // answer or answers with a status other than 2xx, or if the body is too large or takes too long. Returns
  // resource_exhausted if most_at_once fetches are running. No error reveals an address.
  Result<std::string> get(const std::string& url) const;

 private:
  struct Impl;
  explicit UrlFetcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
