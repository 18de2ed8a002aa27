// Catches: crashes and hangs of the HTTP server on any bytes of a connection; answers that do not begin with a status
// line. The bytes are sent in one or two pieces before the client ends the connection.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "fuzz.h"
#include "tessera/server/http/http.h"

using namespace tessera;

namespace {

// Starts a server that runs until the process ends. Returns the server's port.
std::uint16_t serve() {
  HttpOptions options;
  options.port = 0;
  options.max_header_bytes = 2048;
  options.max_body_bytes = 4096;
  options.header_timeout_s = 5;
  options.body_timeout_s = 5;
  options.cors_origins = {"http://a.example"};
  static const std::unique_ptr<HttpServer> server = HttpServer::create(options, [](const HttpExchange& exchange) {
                                                      const HttpRequest& request = exchange.request();
                                                      if (request.path == "/stream") {
                                                        exchange.start_stream({.body = request.body});
                                                        exchange.write(request.query);
                                                        exchange.finish();
                                                      } else {
                                                        exchange.respond({.body = request.path + request.body});
                                                      }
                                                    }).value();
  static std::jthread thread([] { server->run(); });
  std::atexit([] { server->stop({}); });
  return server->port();
}

// Returns false if the server has closed the connection.
bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::uint16_t port = serve();
  std::string_view input = fuzz::as_text(data, size);
  const std::size_t cut = fuzz::take_choice(input, 256) % (input.size() + 1);
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fuzz::require(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
                "the server listens");
  if (send_all(connection, input.substr(0, cut))) send_all(connection, input.substr(cut));
  ::shutdown(connection, SHUT_WR);
  std::string answer;
  for (;;) {
    pollfd state{.fd = connection, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&state, 1, 20'000);
    if (ready < 0 && errno == EINTR) continue;  // interrupted by libFuzzer's timer
    fuzz::require(ready > 0, "a connection whose client has ended is closed soon");
    char buffer[4096];
    const ssize_t received = ::recv(connection, buffer, sizeof buffer, 0);
    if (received <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(received));
  }
  // Closes the connection with a reset, so that no port remains in TIME_WAIT.
  const linger none{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  ::close(connection);
  fuzz::require(answer.empty() || answer.starts_with("HTTP/1."), "an answer begins with a status line");
  return 0;
}
