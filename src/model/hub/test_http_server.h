// An HTTP server on the loopback interface, for tests of downloads.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::test {

struct ServedRequest {
  std::string path;                            // as sent, including the query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

struct ServedReply {
  int status = 200;
  std::string body{};
  std::map<std::string, std::string> headers{};
  std::size_t sent = std::string::npos;  // number of body bytes after which the connection is closed
};

// A server with one connection for each request. Each request is answered on a separate thread, by `handler`.
class HttpServer {
 public:
  using Handler = std::function<ServedReply(const ServedRequest&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_, 64) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    ::shutdown(socket_, SHUT_RDWR);
    accepting_.join();
    for (std::thread& answering : answering_) answering.join();
    ::close(socket_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<ServedRequest> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  // Returns the requests whose paths contain `part`.
  std::vector<ServedRequest> requests(std::string_view part) const {
    std::vector<ServedRequest> all = requests();
    std::erase_if(all, [&](const ServedRequest& request) { return request.path.find(part) == std::string::npos; });
    return all;
  }

 private:
  void accept_all() {
    for (;;) {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      answering_.emplace_back([this, connection] {
        answer(connection);
        ::close(connection);
      });
    }
  }

  void answer(int connection) {
    std::string text;
    while (text.find("\r\n\r\n") == std::string::npos) {
      char buffer[4096];
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    const ServedRequest request = parse(text);
    {
      const std::scoped_lock lock(mutex_);
      requests_.push_back(request);
    }
    const ServedReply reply = handler_(request);
    std::string answer = "HTTP/1.1 " + std::to_string(reply.status) + " Test\r\nConnection: close\r\n";
    for (const auto& [name, value] : reply.headers) answer.append(name).append(": ").append(value).append("\r\n");
    answer += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body.substr(0, reply.sent);
    for (std::string_view rest = answer; !rest.empty();) {
      const ssize_t put = ::send(connection, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (put <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  static ServedRequest parse(const std::string& text) {
    ServedRequest request;
    const std::size_t path = text.find(' ') + 1;
    request.path = text.substr(path, text.find(' ', path) - path);
    for (std::size_t line = text.find("\r\n") + 2; text.compare(line, 2, "\r\n") != 0;) {
      const std::size_t end = text.find("\r\n", line);
      const std::size_t colon = text.find(':', line);
      std::string name = text.substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = text.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    return request;
  }

  Handler handler_;
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<ServedRequest> requests_;
  std::vector<std::thread> answering_;
  std::thread accepting_;
};

}  // namespace tessera::test
