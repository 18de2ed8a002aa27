#include "tessera/server/http/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

#include "tessera/base/log.h"
#include "tessera/server/http/http_message.h"
#include "tessera/server/http/http_session.h"
#include "tessera/server/http/task_queue.h"

namespace tessera {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

// How many connections beyond HttpOptions::max_connections get an error. Further connections are closed without an
// answer.
constexpr std::size_t kMaxRefusing = 64;
// The pause after an accept that failed for lack of file descriptors. Meanwhile, connections that close may free some.
constexpr std::chrono::milliseconds kAcceptPause{50};
// The time that clients have to receive the last answers before a stopping server closes their connections.
constexpr std::chrono::seconds kLastSend{2};

net::steady_timer::duration duration_of(double seconds) {
  return std::chrono::duration_cast<net::steady_timer::duration>(std::chrono::duration<double>(seconds));
}

std::string address_text(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<std::vector<tcp::endpoint>> resolve(net::io_context& io, const HttpOptions& options) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(options.host, std::to_string(options.port),
                                               tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) {
    return invalid_argument(
        fmt::format("the host '{}' has no address to listen on: {}", options.host, error.message()));
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  // Prefers IPv4 for a name with both kinds of addresses, such as localhost, because most clients try IPv4.
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const tcp::endpoint& endpoint) { return endpoint.address().is_v4(); });
  return endpoints;
}

error_code listen_on(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  error_code error;
  // Ignores the returned values, because each call also sets `error`.
  static_cast<void>(acceptor.open(endpoint.protocol(), error));
  // Allows binding a port whose earlier connections are still in TIME_WAIT.
  if (!error) static_cast<void>(acceptor.set_option(net::socket_base::reuse_address(true), error));
  // "::" also accepts IPv4.
  if (!error && endpoint.address().is_v6()) static_cast<void>(acceptor.set_option(net::ip::v6_only(false), error));
  if (!error) static_cast<void>(acceptor.bind(endpoint, error));
  if (!error) static_cast<void>(acceptor.listen(net::socket_base::max_listen_connections, error));
  if (error) {
    error_code ignored;
    static_cast<void>(acceptor.close(ignored));
  }
  return error;
}

Status listen(tcp::acceptor& acceptor, net::io_context& io, const HttpOptions& options) {
  const std::vector<tcp::endpoint> endpoints = TRY(resolve(io, options));
  error_code error;
  for (const tcp::endpoint& endpoint : endpoints) {
    error = listen_on(acceptor, endpoint);
    if (!error) return ok_status();
  }
  const std::string address = address_text(options.host, options.port);
  if (error == net::error::address_in_use) return resource_exhausted(address + " is in use");
  return invalid_argument(fmt::format("cannot listen on {}: {}", address, error.message()));
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Handler handler) {
    sessions_.options = std::move(options);
    sessions_.handler = std::move(handler);
    sessions_.one_ended = [this] {
      close_if_drained();
      end_if_done();
    };
  }
  ~Impl() { sessions_.one_ended = nullptr; }

  Status open() {
    if (!sessions_.options.tls.certificate_file.empty()) sessions_.tls = TRY(TlsContext::create(sessions_.options.tls));
    TRY(listen(acceptor_, sessions_.io, sessions_.options));
    port_ = acceptor_.local_endpoint().port();
    sessions_.loopback = acceptor_.local_endpoint().address().is_loopback();
    return ok_status();
  }
  std::uint16_t port() const { return port_; }

  void run() {
    net::co_spawn(sessions_.io, accept_all(), net::detached);
    if (sessions_.tls != nullptr) watch_certificate();
    for (;;) {
      try {
        sessions_.io.run();
        return;
      } catch (const std::exception& e) {
        log_error("http", "{}", e.what());
      }
    }
  }

  void post(std::function<void()> task) { tasks_.post(sessions_.io, std::move(task)); }
  void after(double seconds, std::function<void()> task);
  void stop(Stop how);

 private:
  net::awaitable<void> accept_all();
  void watch_certificate();
  void admit(tcp::socket socket);
  void close_if_drained();
  void close();
  void give_up();
  void lose_all();
  void end_if_done();

  TaskQueue tasks_{[](const std::function<void()>& task) { call_guarded(task); }};
  HttpSessions sessions_;
  tcp::acceptor acceptor_{sessions_.io};
  net::steady_timer drain_end_{sessions_.io, net::steady_timer::time_point::max()};
  net::steady_timer notice_end_{sessions_.io};
  net::steady_timer last_end_{sessions_.io};
  net::steady_timer next_look_{sessions_.io};  // fires at the next check of the certificate's files
  bool notice_given_ = true;
  std::function<void()> give_up_;                                   // the value of Stop::give_up
  std::unordered_set<std::shared_ptr<net::steady_timer>> delayed_;  // timers of after()
  std::uint16_t port_ = 0;
  bool ended_ = false;
};

net::awaitable<void> HttpServer::Impl::accept_all() {
  bool warned = false;
  while (acceptor_.is_open()) {
    tcp::socket socket(sessions_.io);
    const auto [error] = co_await acceptor_.async_accept(socket, net::as_tuple(net::use_awaitable));
    if (!acceptor_.is_open()) co_return;
    if (!error) {
      warned = false;
      admit(std::move(socket));
      continue;
    }
    if (error == net::error::connection_aborted) continue;
    if (!std::exchange(warned, true)) log_warn("http", "cannot accept connections: {}", error.message());
    net::steady_timer pause(sessions_.io, kAcceptPause);
    co_await pause.async_wait(net::as_tuple(net::use_awaitable));
  }
}

void HttpServer::Impl::admit(tcp::socket socket) {
  const std::size_t limit = sessions_.options.max_connections;
  if (sessions_.alive.size() >= limit + kMaxRefusing) return;
  try {
    socket.set_option(tcp::no_delay(true));
    socket.non_blocking(true);
    const bool refused = sessions_.alive.size() >= limit;
    const auto session = std::make_shared<HttpSession>(sessions_, std::move(socket));
    if (refused) {
      session->start_refusing();
    } else {
      session->start();
    }
  } catch (const std::exception& e) {
    // The client has already gone, or memory ran out.
    log_debug("http", "a connection could not be set up: {}", e.what());
  }
}

void HttpServer::Impl::watch_certificate() {
  next_look_.expires_after(duration_of(sessions_.tls->check_interval_s()));
  next_look_.async_wait([this](error_code error) {
    if (error || ended_) return;
    call_guarded([this] { sessions_.tls->refresh(); });
    watch_certificate();
  });
}

void HttpServer::Impl::after(double seconds, std::function<void()> task) {
  if (ended_) return;
  const auto timer = std::make_shared<net::steady_timer>(sessions_.io, duration_of(seconds));
  delayed_.insert(timer);
  timer->async_wait([this, timer, task = std::move(task)](error_code error) {
    delayed_.erase(timer);
    if (!error) call_guarded(task);
  });
}

void HttpServer::Impl::stop(Stop how) {
  net::post(sessions_.io, [this, how = std::move(how)]() mutable {
    if (ended_) return;
    if (how.give_up) give_up_ = std::move(how.give_up);
    const bool first = !std::exchange(sessions_.stopping, true);
    const double notice_s = std::min(how.notice_s, how.drain_s);
    if (notice_s <= 0) {
      notice_given_ = true;
    } else if (first) {
      notice_given_ = false;
      notice_end_.expires_after(duration_of(notice_s));
      notice_end_.async_wait([this](error_code error) {
        if (error) return;
        notice_given_ = true;
        close_if_drained();
        end_if_done();
      });
    }
    const auto end = net::steady_timer::clock_type::now() + duration_of(how.drain_s);
    if (end < drain_end_.expiry()) {
      drain_end_.expires_at(end);
      drain_end_.async_wait([this](error_code error) {
        if (!error) give_up();
      });
    }
    close_if_drained();
    end_if_done();
  });
}

// Closes a stopping server if no exchange runs and `notice_s` has passed.
void HttpServer::Impl::close_if_drained() {
  if (sessions_.stopping && !sessions_.closing && notice_given_ && sessions_.answering == 0) close();
}

// Stops accepting connections, and ends all sessions. Each session still answers the requests that have already
// arrived, sends its complete answers, and then closes its connection.
void HttpServer::Impl::close() {
  sessions_.closing = true;
  error_code ignored;
  static_cast<void>(acceptor_.close(ignored));
  for (HttpSession* session : sessions_.alive) session->drain();
}

// Called when the time to drain is over. Lets `give_up_` answer the exchanges that are still running, and then ends the
// rest (HttpSession::give_up).
void HttpServer::Impl::give_up() {
  if (sessions_.answering > 0 && give_up_) call_guarded(give_up_);
  // Iterates over a copy, because giving up the last session closes the server, which also iterates over the sessions.
  const std::vector<HttpSession*> all(sessions_.alive.begin(), sessions_.alive.end());
  for (HttpSession* session : all) session->give_up();
  notice_given_ = true;
  close_if_drained();
  end_if_done();
  if (ended_) return;
  last_end_.expires_after(kLastSend);
  last_end_.async_wait([this](error_code error) {
    if (!error) lose_all();
  });
}

void HttpServer::Impl::lose_all() {
  for (HttpSession* session : sessions_.alive) session->lose();
}

// If the server is closed and has no sessions, cancels the timers that would keep run() from returning.
void HttpServer::Impl::end_if_done() {
  if (!sessions_.closing || !sessions_.alive.empty()) return;
  ended_ = true;
  drain_end_.cancel();
  notice_end_.cancel();
  last_end_.cancel();
  next_look_.cancel();
  for (const auto& timer : delayed_) timer->cancel();
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [&](const auto& h) { return equals_ignoring_case(h.first, name); });
  return found == headers.end() ? std::string_view() : found->second;
}

const HttpRequest& HttpExchange::request() const { return state_->request; }
std::string HttpExchange::take_body() { return std::exchange(state_->request.body, {}); }
MemoryCharge& HttpExchange::memory() const { return state_->memory; }
GenerationFacts& HttpExchange::generation() const { return state_->generation; }

void HttpExchange::respond(HttpResponse response) const {
  if (state_->session != nullptr) state_->session->respond(std::move(response));
}
void HttpExchange::start_stream(const HttpResponse& response) const {
  if (state_->session != nullptr) state_->session->start_stream(response);
}
void HttpExchange::write(std::string_view chunk) const {
  if (state_->session != nullptr) state_->session->write(chunk);
}
void HttpExchange::on_sent(std::function<void()> callback) const {
  if (state_->session != nullptr) state_->session->on_sent(std::move(callback));
}
void HttpExchange::break_off() const {
  if (state_->session != nullptr) state_->session->lose();
}
void HttpExchange::finish() const {
  if (state_->session != nullptr) state_->session->finish();
}

void HttpExchange::on_disconnect(std::function<void()> callback) const {
  if (state_->session != nullptr) {
    state_->on_disconnect = std::move(callback);
  } else if (state_->lost) {
    call_guarded(callback);
  }
}

bool HttpExchange::answered() const { return state_->started || state_->lost; }

Result<std::unique_ptr<HttpServer>> HttpServer::create(HttpOptions options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  TRY(impl->open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
std::uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::run() { impl_->run(); }
void HttpServer::post(std::function<void()> task) { impl_->post(std::move(task)); }
void HttpServer::after(double seconds, std::function<void()> task) { impl_->after(seconds, std::move(task)); }
void HttpServer::stop(Stop how) { impl_->stop(std::move(how)); }

}  // namespace tessera
