// An HTTP/1.1 server on one I/O thread. It takes requests, sends responses or event streams, and limits everything that
// a client controls. It uses Boost.Beast, which only http_reading.cpp includes.
//
//   std::unique_ptr<HttpServer> http = TRY(HttpServer::create(options, [&](HttpExchange exchange) { … }));
//   http->run();  // until stop()
//
// The server itself answers requests that are invalid HTTP, in the error shape of their path. It answers a connection's
// requests one after the other, pipelined or not. A client that closes its sending side after a request still gets the
// answer.
//
// Threads: the handler and every function of an HttpExchange run on the I/O thread, which is the thread that called
// run(). Other threads reach it with post(). The handler must return at once, but it may answer the exchange later. An
// exception from a handler or task is logged, and is answered with 500 if nothing was answered yet.
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
#include "tessera/server/http/tls_options.h"

namespace tessera {

class MemoryBudget;
class MemoryCharge;
struct FinishedRequest;
struct HttpRequest;
struct HttpResponse;

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any free port, see HttpServer::port
  TlsOptions tls{};            // plain HTTP if there is no certificate
  std::size_t max_header_bytes = 16 * 1024;
  std::size_t max_body_bytes = 32 * 1024 * 1024;
  std::size_t max_form_bytes = 0;  // limit of multipart/form-data bodies, if greater than max_body_bytes
  std::size_t max_connections = 4096;
  double header_timeout_s = 15;      // limit from the connection to its first byte, and from a request's first byte to
                                     // the end of its head
  double keep_alive_timeout_s = 75;  // limit between two requests of a connection, as announced to the client; the
                                     // server waits one second longer
  double body_timeout_s = 60;
  double write_timeout_s = 60;                     // a client that takes no data for this long is dropped
  std::size_t max_unsent_bytes = 4 * 1024 * 1024;  // limit for a stream; a client that falls further behind is dropped
  // Accepted Host headers, in addition to loopback names. If empty, a server that other machines can reach accepts all.
  // Requests with other hosts get 403 (http_guard.h).
  std::vector<std::string> allowed_hosts{};
  // Accepted origins of web pages, in addition to the server's own: "*" or origins. Requests of other pages get 403.
  std::vector<std::string> cors_origins{};
  // Called on the I/O thread before the server sends an answer that it makes itself. `status` is the status of this
  // answer. The server makes the following answers itself: refusals, 500 for a handler that failed, 503 for a request
  // that was not answered in time, and answers to OPTIONS. Must not throw. May be empty.
  std::function<void(int status)> on_own_answer{};
  // Called on the I/O thread once for each request, after its answer was handed to the connection or was broken off.
  // Also called for requests that are not valid HTTP. May be empty.
  std::function<void(const FinishedRequest& finished)> on_finished{};
  // Called on the I/O thread with each request's head before any of its body is read. To refuse the request, the
  // function returns the answer. Not called for OPTIONS. Must not throw. May be empty.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head{};
  // The budget to which bodies are charged as they arrive. It outlives the server. If it is null, nothing is charged.
  MemoryBudget* memory = nullptr;
};

struct HttpRequest {
  std::string method;  // "GET"; a HEAD appears as GET, and only the head of its answer is sent; OPTIONS never appears
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without "?"
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // The client's address. For IPv6 it is the /64 network ("2001:db8::/64"), because one client owns all its addresses.
  std::string peer{};
  bool has_body = false;   // the head announces a body
  bool head_only = false;  // a HEAD: nothing after the head of the answer is sent

  // Returns the header's value, or "" if the header is absent. Ignores the case of the header's name.
  std::string_view header(std::string_view name) const;
};

// The token counts of a request.
struct GenerationTokens {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;  // prompt tokens that were found in the prefix cache
  std::int64_t completion = 0;
};

// The parameters of a request. A request may have several texts (prompts). All members except `texts` describe the
// first text only.
struct GenerationAsked {
  std::int64_t texts = 0;
  bool generates = false;  // the request asks for generated tokens; otherwise the next members are not set
  std::int64_t max_tokens = 0;
  double temperature = 0;
  double top_p = 1;
};

// The model's work for a request.
struct GenerationFacts {
  std::string id{};                          // the answer's id; "": the request ran no model
  std::optional<GenerationTokens> tokens{};  // the sum of all texts that have ended; none: no text has ended
  std::string_view finish{};                 // why the last text ended, a string literal; "": no text has ended
  GenerationAsked asked{};
  // Seconds from the engine's receipt of a text to its admission, to its first token, and to its end. They belong to
  // the text that ended last.
  double queue_s = 0;
  double first_token_s = 0;
  double engine_s = 0;
  std::string_view route{};    // the route's path, borrowed from the router
  std::string trace_parent{};  // the header traceparent; "": traces are off, or the header is absent
  std::string trace_answer{};  // the header traceparent of the answer; "": the answer has none
};

// A request whose answer has ended.
struct FinishedRequest {
  std::string method{};       // as sent, so a HEAD appears as HEAD; "": unknown, because the head is not valid HTTP
  std::string path{};         // the same text as HttpRequest::path; "": unknown
  std::string user_agent{};   // the header, which may have bytes that are not UTF-8
  std::string address{};      // the client's whole address; "": the client left before the server read it
  int status = 0;             // 499: the client left before an answer
  bool complete = true;       // the whole answer was handed to the connection
  std::size_t bytes_in = 0;   // bytes of the request's head and body that were read, after TLS
  std::size_t bytes_out = 0;  // bytes of the answer's head and body, before TLS
  double seconds = 0;         // time from the request's first byte to the end of its answer
  GenerationFacts generation{};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};  // additional headers
};

// One request and its answer. To answer, either call respond() once, or call start_stream(), then write() any number of
// times, and then finish(). Copies are handles to the same exchange. Calls after the client has left do nothing.
class HttpExchange {
 public:
  const HttpRequest& request() const;
  std::string take_body();  // moves the request's body out, without a copy
  // Returns the request's charge to HttpOptions::memory. The charge covers the request's body until a caller changes
  // it. The charge ends with the last handle, but not before the answer was sent. Any thread may use the charge, but
  // only one thread at a time.
  MemoryCharge& memory() const;
  // Returns the facts that FinishedRequest::generation will have. Changes after the answer's end have no effect.
  GenerationFacts& generation() const;

  void respond(HttpResponse response) const;

  // Sends the head of a chunked response with `response`'s headers. A body that is not empty becomes the first chunk.
  void start_stream(const HttpResponse& response) const;
  void write(std::string_view chunk) const;
  // Calls `callback` once when everything written so far has been sent. Never calls it if the client leaves before
  // that. If the callback throws, the exchange is answered with 500 or broken off.
  void on_sent(std::function<void()> callback) const;
  void finish() const;
  // Ends the connection before the answer is complete, so that the client sees the break.
  void break_off() const;

  // Calls `callback` once if the client leaves before the exchange is fully answered, or at once if it has already
  // left.
  void on_disconnect(std::function<void()> callback) const;
  bool answered() const;  // respond() or start_stream() was called, or the client has left

 private:
  friend class HttpSession;
  class State;
  explicit HttpExchange(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpExchange exchange)>;

  // Binds and listens. Errors name the address and the reason ("127.0.0.1:30000 is in use").
  static Result<std::unique_ptr<HttpServer>> create(HttpOptions options, Handler handler);
  ~HttpServer();

  std::uint16_t port() const;
  // Serves on the calling thread until stop() was called and has completed.
  void run();
  // Runs `task` on the I/O thread, in the order of the posts. Callable from any thread.
  void post(std::function<void()> task);
  // Runs `task` on the I/O thread after `seconds`, unless the server ends before. Call it on the I/O thread.
  void after(double seconds, std::function<void()> task);
  struct Stop {
    double drain_s = 0;   // running exchanges get this many seconds to finish
    double notice_s = 0;  // new connections are accepted for at least this long, so that load balancers notice the end;
                          // ≤ drain_s
    // Called on the I/O thread if exchanges are left after `drain_s`. This call is the last chance to answer them.
    std::function<void()> give_up{};
  };
  // Drains the server, after which run() returns. Callable from any thread. While exchanges run, and for at least
  // `notice_s`, requests on old and new connections still go to the handler, which refuses them. Each answer announces
  // that its connection closes. After that the server accepts no connection and closes idle ones. Exchanges that run
  // longer than `drain_s` are answered 503, or cut off if a stream has begun. A further call can only shorten these
  // times.
  void stop(Stop how);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
