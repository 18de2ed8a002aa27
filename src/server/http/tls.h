// TLS with OpenSSL: a server's certificate and key, and the encrypted bytes of one connection. No function blocks.
//
// Threads: all functions except create() are called on the I/O thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/http/tls_options.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;

namespace tessera {

// Holds the certificate, the key, and the authorities that must have signed the clients' certificates. It reads them
// again when their files change.
class TlsContext {
 public:
  // Errors name the flag, the file and the fault. The possible faults are: a file that cannot be read or has no
  // certificate or key; a key that needs another password or belongs to another certificate; and a certificate that has
  // expired or is not valid yet.
  static Result<std::unique_ptr<TlsContext>> create(TlsOptions options);

  // Reads the files again if one of them has changed since the last look. New connections use the new files. Open
  // connections keep the files with which they began. If the new files cannot be used, the old files stay in use and
  // the log says why. Cost without a change: a few microseconds.
  void refresh();

  const std::shared_ptr<ssl_ctx_st>& current() const { return current_; }
  double check_interval_s() const { return options_.check_interval_s; }

 private:
  using Stamp = std::array<std::int64_t, 4>;  // a file's device, inode, size and time; zeros: there is no file
  using Stamps = std::array<Stamp, 3>;        // stamps of the certificate, the key and the authorities
  explicit TlsContext(TlsOptions options) : options_(std::move(options)) {}
  Stamps stamps() const;

  TlsOptions options_;
  std::shared_ptr<ssl_ctx_st> current_;
  Stamps seen_{};
};

// The server's side of one encrypted connection over a socket that does not block.
class TlsStream {
 public:
  enum class Io : std::uint8_t {
    kDone,
    kWantsRead,   // call again when the socket has bytes
    kWantsWrite,  // call again when the socket takes bytes
    kEnd,         // the client sends no more
    kFailed,      // failure() says why
  };

  // Borrows the socket.
  TlsStream(std::shared_ptr<ssl_ctx_st> context, int socket);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Io handshake();
  // Reads up to `size` bytes. With kDone, `taken` is the number of bytes read, at least 1.
  Io read(char* data, std::size_t size, std::size_t& taken);
  // Writes some of the bytes. After any result but kDone, the next call must begin with the same bytes.
  Io write(const char* data, std::size_t size, std::size_t& taken);
  // Tells the client that no more bytes follow. Has no effect after a failure.
  void end();
  // Returns whether decrypted bytes wait for read(). The socket does not become readable again because of them.
  bool has_pending() const;

  const std::string& failure() const { return failure_; }
  // Returns whether the handshake failed because the client speaks plain HTTP.
  bool got_plain_http() const { return got_plain_http_; }

 private:
  Io outcome(int result);

  std::shared_ptr<ssl_ctx_st> context_;
  int socket_;  // a member, because OpenSSL keeps its address
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  std::string failure_;
  bool got_plain_http_ = false;
};

}  // namespace tessera
