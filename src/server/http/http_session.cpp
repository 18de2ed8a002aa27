#include "tessera/server/http/http_session.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http_message.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

namespace net = boost::asio;
using boost::system::error_code;

// The initial size of a stream's buffer. It holds dozens of events, so few streams need a larger one.
constexpr std::size_t kStreamBuffer = 16 * 1024;
constexpr std::size_t kKeptBuffer = 256 * 1024;  // a larger buffer is freed once it is empty

// Returns the client's address, or nothing if the client has already gone. An IPv4 address that is mapped into IPv6 is
// returned as IPv4.
std::optional<net::ip::address> address_of(const HttpSession::Socket& socket) {
  error_code error;
  net::ip::address address = socket.remote_endpoint(error).address();
  if (error) return std::nullopt;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6());
  return address;
}

// Returns the text that HttpRequest::peer has for this address.
std::string peer_of(const net::ip::address& address) {
  constexpr unsigned short kNetworkBits = 64;
  if (address.is_v4()) return address.to_string();
  return net::ip::make_network_v6(address.to_v6(), kNetworkBits).canonical().to_string();
}

ApiError fault(int status, std::string message) {
  ApiError error{.http_status = status, .message = std::move(message), .param = {}, .code = {}};
  if (status >= 500) error.type = "server_error";
  if (status == 503) error.retry_after_s = 1;
  return error;
}

}  // namespace

bool call_guarded(const std::function<void()>& function) {
  try {
    function();
    return true;
  } catch (const std::exception& e) {
    log_error("http", "a callback threw: {}", e.what());
  } catch (...) {
    log_error("http", "a callback threw");
  }
  return false;
}

HttpSession::HttpSession(HttpSessions& sessions, Socket socket)
    : sessions_(sessions),
      socket_(std::move(socket)),
      read_deadline_{net::steady_timer(sessions.io), &HttpSession::read_deadline_passed},
      write_deadline_{net::steady_timer(sessions.io), &HttpSession::lose},
      backlog_(sessions.options.memory) {
  if (const std::optional<net::ip::address> address = address_of(socket_)) {
    peer_ = peer_of(*address);
    address_ = address->to_string();
  }
  if (sessions_.tls != nullptr) tls_ = std::make_unique<TlsStream>(sessions_.tls->current(), socket_.native_handle());
  sessions_.alive.insert(this);
}

HttpSession::~HttpSession() {
  if (exchange_ != nullptr) {  // the server ends early, and handles may outlive the session
    exchange_->session = nullptr;
    // The callbacks may hold handles, and then the exchange would hold itself.
    exchange_->on_disconnect = nullptr;
    exchange_->on_sent = nullptr;
    --sessions_.answering;
  }
  sessions_.alive.erase(this);
  if (sessions_.one_ended) sessions_.one_ended();
}

void HttpSession::start() { spawn(false); }
void HttpSession::start_refusing() { spawn(true); }

void HttpSession::spawn(bool refuse) {
  net::co_spawn(
      sessions_.io, [self = shared_from_this(), refuse] { return self->serve(refuse); }, net::detached);
}

void HttpSession::drain() {
  if (exchange_ == nullptr) wake_.emit(net::cancellation_type::total);
}

void HttpSession::give_up() {
  if (exchange_ == nullptr) return;
  if (exchange_->started) return lose();
  respond_instead(fault(503, "the server is shutting down").to_response(error_shape_));
}

void HttpSession::lose() {
  if (lost_) return;
  lost_ = true;
  if (tls_ != nullptr && unsent() == 0) tls_->end();
  error_code ignored;
  (void)socket_.close(ignored);
  read_deadline_.timer.cancel();
  write_deadline_.timer.cancel();
  wake_.emit(net::cancellation_type::total);
  backlog_.release();
  unsent_ = nullptr;
  if (exchange_ == nullptr) return;
  const std::shared_ptr<HttpExchange::State> exchange = std::exchange(exchange_, nullptr);
  exchange->session = nullptr;
  exchange->lost = true;
  exchange->on_sent = nullptr;
  --sessions_.answering;
  constexpr int kClientLeft = 499;
  if (!exchange->started) finished_.status = kClientLeft;
  finished_.generation = std::move(exchange->generation);
  tell_finished(/*complete=*/false);
  // Posts the callback, because the handler may be in the middle of write().
  if (exchange->on_disconnect) {
    net::post(sessions_.io, [callback = std::exchange(exchange->on_disconnect, nullptr)] { call_guarded(callback); });
  }
  if (sessions_.one_ended) sessions_.one_ended();
}

// The next functions handle deadlines. Postponing a deadline does not touch the timer. When the timer fires, the
// deadline is checked again.

void HttpSession::set(Deadline& deadline, double seconds) {
  deadline.at = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (!deadline.waiting || deadline.timer.expiry() > deadline.at) wait_for(deadline);
}

// Restarts the reading side's time limit.
void HttpSession::give_time(double seconds) {
  timed_out_ = false;
  set(read_deadline_, seconds);
}

void HttpSession::wait_for(Deadline& deadline) {
  deadline.waiting = true;
  deadline.timer.expires_at(deadline.at);
  deadline.timer.async_wait([self = shared_from_this(), &deadline](error_code error) {
    if (error || self->lost_) return;
    deadline.waiting = false;
    if (deadline.at == Clock::time_point::max()) return;
    if (Clock::now() < deadline.at) return self->wait_for(deadline);
    deadline.at = Clock::time_point::max();
    (self.get()->*deadline.passed)();
  });
}

void HttpSession::read_deadline_passed() {
  if (exchange_ != nullptr) return probe();
  timed_out_ = true;
  wake_.emit(net::cancellation_type::total);
}

// The next functions belong to the writing side.

bool HttpSession::refuse(int status, const std::string& message) {
  return refuse(fault(status, replace_invalid_utf8(message)));
}

bool HttpSession::refuse(const ApiError& error) {
  log_debug("http", "refused: {}", error.message);
  // Closes the connection, because the bytes that follow are an unread part of this request and not the next request.
  keep_alive_ = false;
  HttpResponse response = error.to_response(error_shape_);
  tell_own_answer(response.status);
  send_answer(std::move(response));
  tell_finished(!lost_);
  return false;
}

void HttpSession::send_answer(HttpResponse response) {
  std::string head = head_of(response, {.length = response.body.size()});
  const bool bare = head_only_ || response.status == 204;
  send_whole(std::move(head), bare ? std::string() : std::move(response.body));
}

void HttpSession::respond_instead(HttpResponse response) {
  tell_own_answer(response.status);
  respond(std::move(response));
}

void HttpSession::tell_own_answer(int status) const {
  if (sessions_.options.on_own_answer) sessions_.options.on_own_answer(status);
}

void HttpSession::tell_finished(bool complete) {
  if (!sessions_.options.on_finished) return;
  finished_.address = address_;
  finished_.complete = complete;
  finished_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  call_guarded([this] { sessions_.options.on_finished(finished_); });
}

std::string HttpSession::head_of(const HttpResponse& response, BodyFraming framing) {
  finished_.status = response.status;
  // A body with neither length nor chunks ends when the connection closes.
  keep_alive_ = keep_alive_ && !sessions_.stopping && (framing.length || framing.chunked);
  framing.keep_alive = keep_alive_;
  framing.keep_alive_s = static_cast<std::int64_t>(sessions_.options.keep_alive_timeout_s);
  return response_head(response, framing, head_lines_);
}

void HttpSession::call_handler() {
  try {
    sessions_.handler(HttpExchange(exchange_));
    return;
  } catch (const std::exception& e) {
    log_error("http", "a handler threw: {}", e.what());
  } catch (...) {
    log_error("http", "a handler threw");
  }
  fail_exchange();
}

void HttpSession::fail_exchange() {
  if (exchange_ == nullptr) return;
  if (exchange_->started) return lose();
  keep_alive_ = false;
  respond_instead(fault(500, "the server failed at this request").to_response(error_shape_));
}

void HttpSession::respond(HttpResponse response) {
  if (exchange_->started) return;
  exchange_->started = true;
  send_answer(std::move(response));
  end_exchange();
}

void HttpSession::start_stream(const HttpResponse& response) {
  if (exchange_->started) return;
  exchange_->started = true;
  out_.reserve(kStreamBuffer);
  chunked_ = http_1_1_;
  std::string message = head_of(response, {.chunked = chunked_});
  if (head_only_ || response.body.empty()) return send(message);
  if (chunked_) {
    append_body_chunk(message, response.body);
  } else {
    message += response.body;
  }
  send(message);
}

void HttpSession::write(std::string_view data) {
  if (!exchange_->started || head_only_ || data.empty()) return;
  // Checks the limit before this event is added. A client is therefore never dropped because of a single large event,
  // which may take a while to send.
  if (unsent() > sessions_.options.max_unsent_bytes) {
    log_debug("http", "dropped a client with {} bytes unsent", unsent());
    lose();
  } else {
    send_body(data);
    if (lost_ || unsent() <= kKeptBuffer) return;
    // Charges the buffer only if a slow client lets it grow beyond the memory that was charged for the answer in
    // advance.
    if (static_cast<std::int64_t>(out_.capacity()) <= exchange_->memory.bytes()) return;
    if (backlog_.set(static_cast<std::int64_t>(out_.capacity())).ok()) return;
    log_debug("http", "dropped a client with {} bytes unsent, for which no memory is left", unsent());
    lose();
  }
}

void HttpSession::on_sent(std::function<void()> callback) {
  exchange_->on_sent = std::move(callback);
  if (unsent() == 0) call_on_sent();
}

// Posts the callback, because the handler may be in the middle of write(). If the callback throws, nobody goes on with
// the answer, so the exchange ends.
void HttpSession::call_on_sent() {
  if (exchange_ == nullptr || !exchange_->on_sent) return;
  net::post(sessions_.io, [exchange = exchange_, callback = std::exchange(exchange_->on_sent, nullptr)] {
    if (!call_guarded(callback) && exchange->session != nullptr) exchange->session->fail_exchange();
  });
}

void HttpSession::finish() {
  if (!exchange_->started) return;
  if (chunked_ && !head_only_) send(kLastChunk);
  end_exchange();
}

// Ends the exchange, because its answer is complete. The handles of the exchange do nothing from now on.
void HttpSession::end_exchange() {
  if (exchange_ == nullptr) return;
  const std::shared_ptr<HttpExchange::State> exchange = std::exchange(exchange_, nullptr);
  exchange->session = nullptr;
  exchange->on_disconnect = nullptr;
  exchange->on_sent = nullptr;
  --sessions_.answering;
  finished_.generation = std::move(exchange->generation);
  tell_finished(/*complete=*/true);
  if (unsent() > 0) unsent_ = exchange;
  if (unsent() == 0) wake_.emit(net::cancellation_type::total);
  if (sessions_.one_ended) sessions_.one_ended();
}

void HttpSession::send(std::string_view data) {
  if (lost_) return;
  make_room();
  out_ += data;
  finished_.bytes_out += data.size();
  if (!socket_full_) flush();
}

// Writes a chunk directly into the buffer. This avoids a copy for each token, because a stream sends one chunk per
// token.
void HttpSession::send_body(std::string_view data) {
  if (!chunked_) return send(data);
  if (lost_) return;
  make_room();
  const std::size_t held = out_.size();
  append_body_chunk(out_, data);
  finished_.bytes_out += out_.size() - held;
  if (!socket_full_) flush();
}

// Sends a head and a body. If the head was sent at once, a large body becomes the buffer without a copy.
void HttpSession::send_whole(std::string head, std::string body) {
  if (body.size() <= kKeptBuffer) return send(head += body);
  send(head);
  if (lost_) return;
  if (unsent() > 0) return send(body);
  finished_.bytes_out += body.size();
  out_ = std::move(body);
  sent_ = 0;
  if (!socket_full_) flush();
}

// Removes the sent bytes from the buffer if they are more than half of it and more than kKeptBuffer.
void HttpSession::make_room() {
  if (sent_ <= kKeptBuffer || sent_ <= unsent()) return;
  out_.erase(0, sent_);
  sent_ = 0;
}

void HttpSession::flush() {
  while (unsent() > 0) {
    error_code error;
    const std::size_t taken = write_some(error);
    sent_ += taken;
    if (error == net::error::interrupted) continue;
    if (error == net::error::would_block || error == net::error::try_again) return wait_for_room();
    if (error) return lose();
  }
  out_.clear();
  sent_ = 0;
  if (out_.capacity() > kKeptBuffer) out_.shrink_to_fit();
  write_deadline_.at = Clock::time_point::max();
  backlog_.release();
  unsent_ = nullptr;
  call_on_sent();
  if (exchange_ == nullptr) wake_.emit(net::cancellation_type::total);
}

// Writes as many bytes as the socket or TLS accepts, and returns their number.
std::size_t HttpSession::write_some(error_code& error) {
  const char* const data = out_.data() + sent_;
  if (tls_ == nullptr) return socket_.write_some(net::buffer(data, unsent()), error);
  std::size_t taken = 0;
  const TlsStream::Io io = tls_->write(data, unsent(), taken);
  writing_reads_ = io == TlsStream::Io::kWantsRead;
  if (io == TlsStream::Io::kDone) return taken;
  const bool waits = writing_reads_ || io == TlsStream::Io::kWantsWrite;
  error = waits ? net::error::would_block : net::error::connection_reset;
  return 0;
}

void HttpSession::wait_for_room() {
  socket_full_ = true;
  set(write_deadline_, sessions_.options.write_timeout_s);
  socket_.async_wait(writing_reads_ ? Socket::wait_read : Socket::wait_write, [self = shared_from_this()](error_code) {
    self->socket_full_ = false;
    if (!self->lost_) self->flush();
  });
}

}  // namespace tessera
