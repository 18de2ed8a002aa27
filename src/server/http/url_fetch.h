// Fetches what a client names by a URL, without lending the client the server's place in its network: only http and
// https, only public addresses (public_address.h), no proxy, no credentials. Implemented with libcurl.
//
// The address is checked where the connection is made, on the very address that it is made to, for each redirect again:
// a name that resolves otherwise a moment later, or leads elsewhere by a redirect, gains nothing.
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
  std::int64_t most_bytes = std::int64_t{64} << 20;  // of a body
  double timeout_s = 10;                             // from the call to the last byte, with all redirects
  int most_redirects = 5;
  int most_at_once = 8;  // fetches; further ones are refused
  // By default public addresses, without this machine's own.
  std::function<bool(const sockaddr&)> may_connect = [](const sockaddr& address) {
    return is_public_address(address) && !is_own_address(address);
  };
};

// Threads: any, at the same time.
class UrlFetcher {
 public:
  static Result<UrlFetcher> create(UrlFetchOptions options);
  UrlFetcher(UrlFetcher&&) noexcept;
  UrlFetcher& operator=(UrlFetcher&&) noexcept;
  ~UrlFetcher();

  // The body at `url`. Blocks. Errors, none of which tells an address: invalid_argument for a URL that may not be
  // fetched, what does not answer, answers with another status than 2xx, too much or too late; resource_exhausted where
  // most_at_once are being fetched.
  Result<std::string> get(const std::string& url) const;

 private:
  struct Impl;
  explicit UrlFetcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
