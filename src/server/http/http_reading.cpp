// The reading side of a connection: receives and parses requests, one after the other.
//
// Every co_await is a statement of its own, because g++ 12 resumes wrongly after a co_await next to && or ||.
#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/http/http_guard.h"
#include "tessera/server/http/http_message.h"
#include "tessera/server/http/http_session.h"

namespace tessera {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kHeadRead = 4 * 1024;
constexpr std::size_t kBodyRead = 64 * 1024;
constexpr std::size_t kReadAhead = 16 * 1024;     // byte limit for reading ahead while a request is being answered
constexpr std::size_t kMaxChunkHead = 16 * 1024;  // byte limit for a chunk's extensions, and for the trailer
// The seconds that a client has to read the last answer before the connection closes. Closing at once while the client
// still sends would reset the connection and lose the answer.
constexpr double kLingerS = 1;
// The seconds after which a client that closed its sending side is probed. The client may have closed both sides, but
// the server learns of that only when it writes.
constexpr double kProbeAfterS = 1;
constexpr std::chrono::milliseconds kHangUpInterval{250};

// A connection is kept open this many seconds longer than announced, so that a request sent at the last moment arrives.
constexpr double kKeepAliveGraceS = 1;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Returns a token that makes an operation cancellable by the signal. After the operation, the caller must clear the
// signal's slot, because the slot would otherwise point at the finished operation.
auto woken_by(net::cancellation_signal& signal) {
  return net::bind_cancellation_slot(signal.slot(), net::as_tuple(net::use_awaitable));
}

}  // namespace

struct HttpSession::Reader {
  explicit Reader(const HttpOptions& options) : memory(options.memory) {
    parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
    // The larger limit applies until the body's type is known.
    parser.body_limit(std::max(options.max_body_bytes, options.max_form_bytes));
  }

  http::request_parser<http::string_body> parser;
  std::size_t head_bytes = 0;
  std::size_t blank_bytes = 0;  // bytes of empty lines before the head
  bool begun = false;           // the head's first byte has arrived
  HttpRequest request{};
  bool expects_continue = false;
  MemoryCharge memory;  // charge for the body
};

HttpSession::Task<void> HttpSession::serve(bool refused) {
  try {
    bool more = true;
    if (tls_ != nullptr) more = co_await shake_hands();
    if (more && refused) more = refuse(503, "there are too many connections");
    while (more) more = co_await serve_one();
    // Lingers only if an answer announced the close, because otherwise no answer is on its way to the client.
    if (!keep_alive_) co_await linger();
  } catch (const std::exception& e) {
    log_error("http", "a connection failed: {}", e.what());
  }
  lose();
}

// Does the TLS handshake. Returns false if the connection ends.
HttpSession::Task<bool> HttpSession::shake_hands() {
  using Io = TlsStream::Io;
  set(read_deadline_, sessions_.options.header_timeout_s);
  Io io = tls_->handshake();
  while (io == Io::kWantsRead || io == Io::kWantsWrite) {
    (void)co_await wait_until(io);
    if (lost_ || timed_out_ || sessions_.closing) co_return false;
    io = tls_->handshake();
  }
  if (io == Io::kDone) co_return true;
  log_debug("http", "a TLS handshake failed: {}", tls_->failure());
  if (!tls_->got_plain_http()) co_return false;
  tls_ = nullptr;
  co_return refuse(400, "this port speaks HTTPS, and the request is plain HTTP; accepted: https://");
}

// Reads one request and answers it. Returns false if the connection ends.
HttpSession::Task<bool> HttpSession::serve_one() {
  const Asked asked = co_await read_request();
  if (asked == Asked::kNothing) co_return false;
  if (asked == Asked::kWhole) call_handler();
  while (!lost_ && (exchange_ != nullptr || unsent() > 0)) co_await watch();
  co_return keep_alive_ && !lost_;
}

// Reads a whole request into exchange_, or answers it by its head alone. Returns kNothing if no request came, or if it
// was invalid and got an error.
HttpSession::Task<HttpSession::Asked> HttpSession::read_request() {
  head_lines_.clear();
  http_1_1_ = true;
  head_only_ = false;
  error_shape_ = ErrorShape::kOpenAi;
  keep_alive_ = true;
  finished_ = {};
  began_ = Clock::now();
  give_time(std::exchange(reused_, true) ? sessions_.options.keep_alive_timeout_s + kKeepAliveGraceS
                                         : sessions_.options.header_timeout_s);

  Reader reader(sessions_.options);
  const bool head = co_await parse(reader, false);
  if (!head || !accept_head(reader)) co_return Asked::kNothing;
  if (answer_head(reader)) co_return Asked::kAnswered;

  give_time(sessions_.options.body_timeout_s);
  if (reader.expects_continue && in_.empty() && !reader.parser.is_done()) send(kContinue);
  const bool whole = co_await parse(reader, true);
  if (!whole || !charge_body(reader)) co_return Asked::kNothing;
  read_deadline_.at = Clock::time_point::max();

  exchange_ = std::make_shared<HttpExchange::State>();
  exchange_->request = std::move(reader.request);
  exchange_->request.body = std::move(reader.parser.get().body());
  exchange_->request.peer = peer_;
  exchange_->memory = std::move(reader.memory);
  exchange_->session = this;
  ++sessions_.answering;
  co_return Asked::kWhole;
}

// Reads and parses up to the end of the head or, if `whole`, up to the end of the body. Returns false if the connection
// ends.
HttpSession::Task<bool> HttpSession::parse(Reader& reader, bool whole) {
  http::request_parser<http::string_body>& parser = reader.parser;
  parser.eager(whole);
  while (whole ? !parser.is_done() : !parser.is_header_done()) {
    error_code error = http::error::need_more;
    if (reader.head_bytes == 0 && !skip_blank_lines(reader))
      co_return refuse(400, "too many empty lines before a request");
    const bool half_blank = reader.head_bytes == 0 && in_ == "\r";
    if (!in_.empty() && !half_blank) {
      // Empty lines do not start the header timeout. They give a request no additional time, and do not shorten the
      // time of an idle connection.
      if (!std::exchange(reader.begun, true)) {
        give_time(sessions_.options.header_timeout_s);
        began_ = Clock::now();
      }
      const std::size_t parsed = parser.put(net::buffer(in_), error);
      in_.erase(0, parsed);
      finished_.bytes_in += parsed;
      // Counts the head's bytes. The parser's own limit counts only unconsumed bytes, so a head that is sent line by
      // line never reaches that limit.
      if (!whole) reader.head_bytes += parsed;
      if (reader.head_bytes > sessions_.options.max_header_bytes) error = http::error::header_limit;
      if (whole && !charge_body(reader)) co_return false;
      if (!error) continue;
      if (error == http::error::need_more && whole && in_.size() > kMaxChunkHead) error = http::error::bad_chunk;
    }
    if (error != http::error::need_more) co_return refuse_unparsed(reader, error);

    const bool idle = reader.head_bytes == 0 && in_.empty();
    if (sessions_.closing && !has_arrived()) co_return idle ? false : refuse(503, "the server is shutting down");
    // Checks the deadline before each wait. The deadline's timer fires only once, and may have fired while nothing was
    // waiting.
    if (wait_is_over(idle, whole)) co_return false;
    const Read read = co_await read_some(whole ? kBodyRead : kHeadRead);
    if (read == Read::kData || read == Read::kWoken) continue;
    if (read == Read::kEnd && !idle) refuse(400, "the connection was closed before the request was complete");
    co_return false;
  }
  if (in_.empty() && in_.capacity() > kBodyRead) in_.shrink_to_fit();
  co_return true;
}

// Removes empty lines before a request, because some clients send empty lines after a body (RFC 9112, 2.2). Returns
// false if there are too many.
bool HttpSession::skip_blank_lines(Reader& reader) {
  std::size_t blank = 0;
  while (in_.compare(blank, 2, "\r\n") == 0) blank += 2;
  in_.erase(0, blank);
  reader.blank_bytes += blank;
  return reader.blank_bytes <= sessions_.options.max_header_bytes;
}

// Returns whether the reading side's time is over. If a request has begun, answers it with 408.
bool HttpSession::wait_is_over(bool idle, bool whole) {
  if (!timed_out_) return false;
  // Keeps an idle connection on which a request has just arrived. Closing would lose the request, and its client may
  // not send it again. The request's first byte starts a new time limit.
  if (idle && has_arrived()) return false;
  if (!idle) refuse(408, whole ? "the request's body took too long" : "the request's head took too long");
  return true;
}

// Returns whether the socket has bytes that were not received yet.
bool HttpSession::has_arrived() {
  error_code error;
  return (tls_ != nullptr && tls_->has_pending()) || (socket_.available(error) > 0 && !error);
}

// Waits until the socket is readable or writable, as TLS requires.
HttpSession::Task<error_code> HttpSession::wait_until(TlsStream::Io wanted) {
  const Socket::wait_type type = wanted == TlsStream::Io::kWantsWrite ? Socket::wait_write : Socket::wait_read;
  const auto [error] = co_await socket_.async_wait(type, woken_by(wake_));
  wake_.slot().clear();
  co_return error;
}

// Receives at least one byte, or returns an error. The error is eof if the client sends no more.
HttpSession::Task<std::pair<error_code, std::size_t>> HttpSession::receive(char* data, std::size_t size) {
  if (tls_ == nullptr) {
    const auto [error, received] = co_await socket_.async_read_some(net::buffer(data, size), woken_by(wake_));
    wake_.slot().clear();
    co_return std::pair(error, received);
  }
  for (;;) {
    std::size_t received = 0;
    const TlsStream::Io io = tls_->read(data, size, received);
    if (io == TlsStream::Io::kDone) co_return std::pair(error_code(), received);
    if (io == TlsStream::Io::kEnd) co_return std::pair(error_code(net::error::eof), received);
    if (io == TlsStream::Io::kFailed) co_return std::pair(error_code(net::error::connection_reset), received);
    const error_code error = co_await wait_until(io);
    if (error) co_return std::pair(error, received);
    if (lost_) co_return std::pair(error_code(net::error::operation_aborted), received);
  }
}

HttpSession::Task<HttpSession::Read> HttpSession::read_some(std::size_t size) {
  if (client_ended_) co_return Read::kEnd;
  const std::size_t held = in_.size();
  in_.resize(held + size);
  const auto [error, received] = co_await receive(in_.data() + held, size);
  in_.resize(held + received);
  if (lost_) co_return Read::kLost;
  if (!error) co_return Read::kData;
  if (error == net::error::operation_aborted) co_return Read::kWoken;
  if (error == net::error::eof) {
    client_ended_ = true;
    co_return Read::kEnd;
  }
  lose();
  co_return Read::kLost;
}

// Waits for the end of the current answer, and notices if the client disconnects.
HttpSession::Task<void> HttpSession::watch() {
  if (!client_ended_ && in_.size() < kReadAhead) {
    const Read read = co_await read_some(kHeadRead);
    if (read == Read::kEnd && exchange_ != nullptr) set(read_deadline_, kProbeAfterS);
    co_return;
  }
  if (has_hung_up(socket_.native_handle())) {
    lose();
    co_return;
  }
  net::steady_timer pause(sessions_.io, kHangUpInterval);
  co_await pause.async_wait(woken_by(wake_));
  wake_.slot().clear();
}

// Sends "100 Continue", which every client of HTTP/1.1 accepts, to find out whether the client is still there. If the
// client has closed both sides of the connection, its system answers with a reset.
void HttpSession::probe() {
  if (!exchange_->started && http_1_1_) send(kContinue);
}

HttpSession::Task<void> HttpSession::linger() {
  while (!lost_ && unsent() > 0) co_await watch();
  if (lost_) co_return;
  if (tls_ != nullptr) tls_->end();
  error_code ignored;
  (void)socket_.shutdown(Socket::shutdown_send, ignored);
  give_time(kLingerS);
  for (Read read = Read::kData; read == Read::kData && !timed_out_;) {
    in_.clear();
    read = co_await read_some(kBodyRead);
  }
}

bool HttpSession::refuse_unparsed(Reader& reader, error_code error) {
  const HttpOptions& options = sessions_.options;
  // If the announced length of the body is too large, the parser fails before accept_head() has set the path. But the
  // parser has already read the target, which contains the path.
  if (const Result<RequestTarget> target = parse_target(reader.parser.get().target()); target.ok()) {
    error_shape_ = error_shape_of(target->path);
    finished_.method = reader.parser.get().method_string();
    finished_.path = target->path;
  }
  if (error == http::error::header_limit)
    return refuse(431, fmt::format("the request's head is longer than {} bytes", options.max_header_bytes));
  if (error == http::error::body_limit)
    return refuse(413, long_body(body_limit(options, reader.parser.get()[http::field::content_type])));
  if (error == http::error::bad_version) return refuse(505, "the request is not of HTTP/1.0 or HTTP/1.1");
  return refuse(400, fmt::format("malformed HTTP request: {}", error.message()));
}

// Copies the head into `reader.request` and into the session, and checks it. Returns false if the request was refused.
bool HttpSession::accept_head(Reader& reader) {
  const auto& head = reader.parser.get();
  HttpRequest& request = reader.request;
  http_1_1_ = head.version() >= 11;
  keep_alive_ = reader.parser.keep_alive();
  for (const auto& field : head)
    request.headers.emplace_back(std::string_view(field.name_string()), std::string_view(field.value()));
  head_lines_ = cors_lines(request, sessions_.options.cors_origins);
  request.method = head.method_string();
  finished_.method = request.method;
  finished_.user_agent = request.header("User-Agent");
  head_only_ = request.head_only = request.method == "HEAD";
  if (head_only_) request.method = "GET";

  Result<RequestTarget> target = parse_target(head.target());
  if (!target.ok()) return refuse(400, target.status().message());
  request.path = std::move(target->path);
  finished_.path = request.path;
  error_shape_ = error_shape_of(request.path);
  request.query = std::move(target->query);
  if (http_1_1_ && head.count(http::field::host) != 1) return refuse(400, "the request needs one Host header");
  const std::string_view coding = request.header("Transfer-Encoding");
  if (!coding.empty() && !equals_ignoring_case(coding, "chunked"))
    return refuse(501, fmt::format("transfer encoding '{}' is not supported; accepted: chunked", coding));
  const std::string_view host = target->authority.empty() ? request.header("Host") : target->authority;
  if (const std::optional<ApiError> error = check_sender(request, host, sessions_.options, sessions_.loopback))
    return refuse(*error);
  if (const std::string_view expected = request.header("Expect"); !expected.empty()) {
    if (!equals_ignoring_case(expected, "100-continue"))
      return refuse(417, fmt::format("'Expect: {}' is not supported; accepted: 100-continue", expected));
    reader.expects_continue = http_1_1_;
  }
  request.has_body = !coding.empty() || reader.parser.content_length().value_or(0) > 0;
  const std::size_t most = body_limit(sessions_.options, request.header("Content-Type"));
  if (reader.parser.content_length().value_or(0) > most) return refuse(413, long_body(most));
  reader.parser.body_limit(most);
  return true;
}

// Answers what the head alone decides: refusals, OPTIONS, and bodies for which memory is lacking. Returns false if the
// body must be read.
bool HttpSession::answer_head(Reader& reader) {
  const bool options = reader.request.method == "OPTIONS";
  std::optional<HttpResponse> answer;
  if (options) {
    if (!head_lines_.empty() && is_preflight(reader.request)) head_lines_ += preflight_lines(reader.request);
    answer = HttpResponse{.status = 204, .body = {}, .headers = {}};
    answer->headers.emplace_back("Allow", "GET, HEAD, POST, OPTIONS");
  } else if (sessions_.options.check_head) {
    answer = sessions_.options.check_head(reader.request);
  }
  bool own = options;
  if (!answer) {
    const std::uint64_t announced = reader.parser.content_length().value_or(0);
    const ApiStatus fits = reader.memory.check(static_cast<std::int64_t>(announced));
    if (fits.ok()) return false;
    answer = fits.error().to_response(error_shape_);
    own = true;
  }
  keep_alive_ = keep_alive_ && skip_body(reader);
  if (own) tell_own_answer(answer->status);
  send_answer(*std::move(answer));
  tell_finished(!lost_);
  return true;
}

// Removes the body of a request that was answered without it. Returns false if the body has not fully arrived and the
// connection must end.
bool HttpSession::skip_body(Reader& reader) {
  if (!reader.request.has_body) return true;
  const std::size_t length = reader.parser.content_length().value_or(SIZE_MAX);
  if (length > in_.size()) return false;
  in_.erase(0, length);
  finished_.bytes_in += length;
  return true;
}

// Charges the part of the body that has arrived. If the length is not announced, the body's buffer grows by doubling.
// The charge then covers one and a half buffers: the new buffer, and the old one, which is half as large. Both exist
// while the bytes are copied. Returns false if the request was refused.
bool HttpSession::charge_body(Reader& reader) {
  if (!reader.request.has_body) return true;
  const std::string& body = reader.parser.get().body();
  std::size_t held = reader.parser.content_length() ? body.size() : body.capacity() + body.capacity() / 2;
  // Rounds the charge up to whole reads, and adds the buffer for the next read.
  if (held > kHeadRead) held = (held / kBodyRead + 2) * kBodyRead;
  const ApiStatus charged = reader.memory.set(static_cast<std::int64_t>(held));
  return charged.ok() || refuse(charged.error());
}

}  // namespace tessera
