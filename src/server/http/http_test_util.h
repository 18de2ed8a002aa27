// An HTTP server on a thread, and a test client on a bare socket that can misbehave. For tests only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/server/http/http.h"

namespace tessera::testing {

// The time limit of every wait. A test that waits this long has failed.
inline constexpr int kPatienceMs = 10'000;

// Returns whether `condition` becomes true within kPatienceMs.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline std::ptrdiff_t count_open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

struct Reply {
  int status = 0;  // 0: the connection ended before an answer
  std::string head;
  std::string body;

  bool has_line(const std::string& line) const { return head.find(line + "\r\n") != std::string::npos; }
};

class Client {
 public:
  explicit Client(std::uint16_t port, const std::string& host = "127.0.0.1", int receive_buffer = 0) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
    for (const addrinfo* at = found; at != nullptr && socket_ < 0; at = at->ai_next) {
      socket_ = ::socket(at->ai_family, SOCK_STREAM, 0);
      if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
      if (::connect(socket_, at->ai_addr, at->ai_addrlen) != 0) close();
    }
    ::freeaddrinfo(found);
  }
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)), held_(std::move(other.held_)) {}
  Client& operator=(Client&&) = delete;
  ~Client() { close(); }

  bool connected() const { return socket_ >= 0; }
  // Sends the data. Returns false if the server has closed the connection.
  bool send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void end_writing() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // Closes the connection with a reset.
  void abort() {
    const linger none{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close();
  }

  // Receives some bytes. Returns false if the connection has ended or nothing came in time.
  bool receive() {
    pollfd state{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&state, 1, kPatienceMs) <= 0) {
      ADD_FAILURE() << "nothing came";
      return false;
    }
    char buffer[16384];
    const ssize_t received = ::recv(socket_, buffer, sizeof buffer, 0);
    if (received <= 0) return false;
    held_.append(buffer, static_cast<std::size_t>(received));
    return true;
  }
  // Reads up to and including the text `end`. Returns "" if the connection ends before.
  std::string read_through(std::string_view end) {
    std::size_t at = 0;
    while ((at = held_.find(end)) == std::string::npos)
      if (!receive()) return {};
    return take(at + end.size());
  }
  // Reads everything up to the connection's end.
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(held_, {});
  }
  bool at_end() { return read_to_end().empty(); }

  Reply read_reply(bool head_only = false) {
    Reply reply;
    reply.head = read_through("\r\n\r\n");
    if (reply.head.empty()) return reply;
    reply.status = std::stoi(reply.head.substr(9, 3));
    if (head_only || reply.status == 100 || reply.status == 204) return reply;
    if (reply.has_line("Transfer-Encoding: chunked")) {
      for (;;) {
        const std::string size = read_through("\r\n");
        if (size.empty()) return {};
        const std::size_t bytes = std::stoul(size, nullptr, 16);
        reply.body += read_bytes(bytes + 2).substr(0, bytes);
        if (bytes == 0) return reply;
      }
    }
    const std::size_t length = reply.head.find("Content-Length: ");
    reply.body = length == std::string::npos ? read_to_end() : read_bytes(std::stoul(reply.head.substr(length + 16)));
    return reply;
  }
  Reply ask(std::string_view request) {
    send(request);
    return read_reply();
  }

 private:
  std::string take(std::size_t bytes) {
    std::string taken = held_.substr(0, bytes);
    held_.erase(0, bytes);
    return taken;
  }
  std::string read_bytes(std::size_t bytes) {
    while (held_.size() < bytes)
      if (!receive()) return {};
    return take(bytes);
  }

  int socket_ = -1;
  std::string held_;
};

inline std::string get(std::string_view target, std::string_view headers = "") {
  return std::string("GET ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(headers).append("\r\n");
}
inline std::string post(std::string_view target, std::string_view body, std::string_view headers = "") {
  return std::string("POST ")
      .append(target)
      .append(" HTTP/1.1\r\nHost: localhost\r\n")
      .append(headers)
      .append("Content-Length: ")
      .append(std::to_string(body.size()))
      .append("\r\n\r\n")
      .append(body);
}

// Answers with the request's method, path, query and body.
inline void echo(HttpExchange exchange) {
  const HttpRequest& request = exchange.request();
  exchange.respond({
      .content_type = "text/plain",
      .body = request.method + " " + request.path + "?" + request.query + " " + request.body,
  });
}

class TestServer {
 public:
  explicit TestServer(HttpServer::Handler handler = echo, HttpOptions options = {}) {
    options.port = 0;
    Result<std::unique_ptr<HttpServer>> made = HttpServer::create(std::move(options), std::move(handler));
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (!made.ok()) return;
    http = std::move(made).value();
    std::packaged_task<void()> run([this] { http->run(); });
    ran_ = run.get_future();
    thread_ = std::thread(std::move(run));
  }
  ~TestServer() {
    if (http == nullptr) return;
    http->stop({});
    thread_.join();
  }

  std::uint16_t port() const { return http->port(); }
  Client connect() const { return Client(port()); }
  Reply ask(std::string_view request) const { return connect().ask(request); }
  bool run_has_returned(int within_ms) {
    return ran_.wait_for(std::chrono::milliseconds(within_ms)) == std::future_status::ready;
  }

  std::unique_ptr<HttpServer> http;

 private:
  std::future<void> ran_;
  std::thread thread_;
};

// A handler that leaves the answers to the test. It holds the exchanges and counts the clients that disconnected. It is
// used on the I/O thread.
struct Held {
  std::atomic<int> taken{0};
  std::atomic<int> gone{0};
  std::vector<HttpExchange> exchanges;

  void hold(const HttpExchange& exchange) {
    exchange.on_disconnect([this] { ++gone; });
    exchanges.push_back(exchange);
    ++taken;
  }
  HttpServer::Handler handler(bool stream) {
    return [this, stream](HttpExchange exchange) {
      if (stream) exchange.start_stream({.body = "begun"});
      hold(exchange);
    };
  }
};

}  // namespace tessera::testing
