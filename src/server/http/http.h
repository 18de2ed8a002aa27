// An HTTP/1.1 server on one I/O thread: requests in, responses or event streams out, with limits on everything a
// client controls. Boost.Beast stands behind it, in http_reading.cpp alone.
//
//   std::unique_ptr<HttpServer> http = TRY(HttpServer::create(options, [&](HttpExchange exchange) { … }));
//   http->run();  // until stop()
//
// What is wrong with a request as HTTP is answered here, in OpenAI's error form. A connection's requests are answered
// one after the other, pipelined or not. A client that ends its side after a request still gets the answer.
//
// Threads: the handler, and every function of an HttpExchange, run on the I/O thread, that of run(). Other threads
// reach it by post(). The handler returns at once; an exchange is answered then or later. What a handler or task throws
// is logged, and answered with 500 where nothing was answered yet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

class MemoryBudget;
class MemoryCharge;
struct HttpRequest;
struct HttpResponse;

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any free one, see HttpServer::port
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 32 * 1024 * 1024;
  std::size_t max_connections = 4096;
  double header_timeout_s = 15;      // to a connection's first byte, and from a request's first one to its head's end
  double keep_alive_timeout_s = 75;  // of a connection between two requests; announced, and kept a second longer
  double body_timeout_s = 60;
  double write_timeout_s = 60;                     // a client that takes nothing for so long is dropped
  std::size_t max_unsent_bytes = 4 * 1024 * 1024;  // of a stream; a client that falls behind further is dropped
  // Who may ask, see http_guard.h; others get 403.
  std::vector<std::string> allowed_hosts{};  // of Host headers, beside loopback names
  std::vector<std::string> cors_origins{};   // of web pages, beside the server's own: "*" or origins
  // Called on the I/O thread, before it is sent, with the status of each answer that is not the handler's: refusals,
  // 500 for a handler that failed, 503 for what was not answered in time, and answers to OPTIONS. Empty: not wanted. It
  // must not throw.
  std::function<void(int status)> on_own_answer{};
  // Called on the I/O thread with each request's head, before anything of its body is read: the answer to a request
  // that is refused by its head alone. Not called for OPTIONS. Empty: none is. It must not throw.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head{};
  // What bodies are charged to, as they arrive; outlives the server. Null: nothing.
  MemoryBudget* memory = nullptr;
};

struct HttpRequest {
  std::string method;  // "GET"; a HEAD comes as GET, and only the head of its answer is sent; no OPTIONS comes
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without "?"
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // The address that it came from; of IPv6 the network, "2001:db8::/64", as a client has all addresses of one.
  std::string peer{};
  bool has_body = false;  // the head announces one

  // The header's value, whatever the case of its name; "" where it is not there.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // further ones
};

// One request and the way to answer it: either respond() once, or start_stream(), write() any number of times,
// finish(). Copies are handles to the same exchange. Calls after the client has gone do nothing.
class HttpExchange {
 public:
  const HttpRequest& request() const;
  std::string take_body();  // of the request, without a copy
  // What the request holds of HttpOptions::memory, first of all its body. It ends with the last handle, and not before
  // the answer was sent. Any thread, one at a time.
  MemoryCharge& memory() const;

  void respond(HttpResponse response) const;

  // Sends the head of a chunked response; headers are `response`'s, and its body is the first chunk if not empty.
  void start_stream(HttpResponse response) const;
  void write(std::string_view chunk) const;
  // Calls back once when all that was written has been sent; never where the client goes before.
  void on_sent(std::function<void()> callback) const;
  void finish() const;
  // Ends the connection before the answer's end, so that the client can tell.
  void break_off() const;

  // Called once when the client goes away before the exchange is answered to its end; at once where it has already.
  void on_disconnect(std::function<void()> callback) const;
  bool answered() const;  // respond() or start_stream() was called, or the client has gone

 private:
  friend class HttpSession;
  class State;
  explicit HttpExchange(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpExchange exchange)>;

  // Binds and listens. Errors name address and reason ("127.0.0.1:30000 is in use").
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, Handler handler);
  ~HttpServer();

  std::uint16_t port() const;
  // Serves on the calling thread until stop() has done its work.
  void run();
  // From any thread: runs `task` on the I/O thread, in the order of posts.
  void post(std::function<void()> task);
  // On the I/O thread: runs `task` there after `seconds`, unless the server ends before.
  void after(double seconds, std::function<void()> task);
  struct Stop {
    double drain_s = 0;   // that exchanges under way have to end
    double notice_s = 0;  // that connections are accepted for at least, so that balancers hear of the end; ≤ drain_s
    // Called on the I/O thread once `drain_s` has passed and exchanges are left: the last chance to answer them.
    std::function<void()> give_up{};
  };
  // From any thread: drains, and then run() returns. While exchanges are under way, and for `notice_s`, requests still
  // go to the handler, which refuses them, on connections old and new; each answer announces the connection's end.
  // Then nothing more is accepted and idle connections are closed. Exchanges that have not ended after `drain_s` are
  // answered 503, or are cut off where a stream has begun. A second call shortens the wait.
  void stop(Stop how);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
