// One connection of the HTTP server. It reads a request, has it answered, and reads the next. Private to http*.cpp.
//
// A session has a reading side and a writing side, which both run on the I/O thread. The reading side is a coroutine.
// While a request is being answered, the reading side reads a little ahead, so that it notices when the client leaves.
// The writing side is a buffer. It sends as many bytes as the socket accepts at once, and sends more each time the
// socket accepts more.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"
#include "tessera/server/http/http_message.h"
#include "tessera/server/http/tls.h"
#include "tessera/server/memory_budget.h"

namespace tessera {

class HttpSession;

// The state that all sessions of a server share. It outlives the sessions.
struct HttpSessions {
  HttpOptions options{};
  HttpServer::Handler handler{};
  std::unique_ptr<TlsContext> tls{};  // null: plain HTTP
  bool loopback = false;              // the server listens on a loopback address only
  bool stopping = false;              // every answer closes its connection
  bool closing = false;               // no further request is read
  std::size_t answering = 0;          // number of running exchanges
  std::unordered_set<HttpSession*> alive{};
  std::function<void()> one_ended{};  // called when a session or an exchange has ended
  // This must be the last member, because its destructor destroys sessions, and these use the other members.
  boost::asio::io_context io{1};
};

// The state of an exchange. It lives as long as the exchange has handles, even after the answer has ended.
class HttpExchange::State {
 public:
  HttpRequest request{};
  MemoryCharge memory{};
  GenerationFacts generation{};
  HttpSession* session = nullptr;  // null: the answer has ended, or the client has left
  bool started = false;            // respond() or start_stream() was called
  bool lost = false;               // the client left before the answer's end
  std::function<void()> on_disconnect{};
  std::function<void()> on_sent{};
};

// Runs a callback. If the callback throws, logs the exception and returns false.
bool call_guarded(const std::function<void()>& function);

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  HttpSession(HttpSessions& sessions, Socket socket);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  // Serves until the connection ends. A pending operation on the I/O thread keeps the session alive.
  void start();
  // Answers that there are too many connections. Called instead of start().
  void start_refusing();
  // Closes the connection after the current answer. Without a current answer, first answers requests that have arrived.
  void drain();
  // Answers the current exchange with 503, or closes the connection if its answer has begun.
  void give_up();
  // Closes the connection now. The client then counts as gone. May be called at any time.
  void lose();

  // These functions implement those of HttpExchange with the same names. Precondition: the exchange has not ended.
  void respond(HttpResponse response);
  void start_stream(const HttpResponse& response);
  void write(std::string_view data);
  void on_sent(std::function<void()> callback);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Reader;  // the parser, the parsed head, and the memory that is charged for the body

  // A deadline that is cheap to move, and the function that is called when it passes.
  struct Deadline {
    boost::asio::steady_timer timer;
    void (HttpSession::*passed)();
    Clock::time_point at = Clock::time_point::max();
    bool waiting = false;
  };
  void set(Deadline& deadline, double seconds);
  void wait_for(Deadline& deadline);
  void read_deadline_passed();

  // Functions of the reading side (http_reading.cpp).
  template <class T>
  using Task = boost::asio::awaitable<T>;
  enum class Read { kData, kEnd, kWoken, kLost };
  enum class Asked { kWhole, kAnswered, kNothing };
  void spawn(bool refused);
  Task<void> serve(bool refused);
  Task<bool> shake_hands();
  Task<bool> serve_one();
  Task<Asked> read_request();
  Task<bool> parse(Reader& reader, bool whole);
  Task<Read> read_some(std::size_t size);
  Task<boost::system::error_code> wait_until(TlsStream::Io wanted);
  Task<std::pair<boost::system::error_code, std::size_t>> receive(char* data, std::size_t size);
  Task<void> watch();
  Task<void> linger();
  void probe();
  bool skip_blank_lines(Reader& reader);
  void give_time(double seconds);
  bool wait_is_over(bool idle, bool whole);
  bool has_arrived();
  bool refuse_unparsed(Reader& reader, boost::system::error_code error);
  bool accept_head(Reader& reader);
  bool answer_head(Reader& reader);
  bool skip_body(Reader& reader);
  bool charge_body(Reader& reader);

  // Functions of the writing side.
  //
  // respond_instead() answers the exchange in place of the handler.
  void respond_instead(HttpResponse response);
  // Sends an answer whose whole body is known.
  void send_answer(HttpResponse response);
  void tell_own_answer(int status) const;
  // Answers a request that never became an exchange, and closes the connection. Always returns false.
  bool refuse(const ApiError& error);
  bool refuse(int status, const std::string& message);
  void call_handler();
  // Called when the handler or its callback failed. Answers 500 if nothing was answered yet. Otherwise breaks off the
  // connection.
  void fail_exchange();
  std::string head_of(const HttpResponse& response, BodyFraming framing);
  void send(std::string_view data);
  void send_body(std::string_view data);
  void send_whole(std::string head, std::string body);
  void call_on_sent();
  void make_room();
  void flush();
  std::size_t write_some(boost::system::error_code& error);
  void wait_for_room();
  std::size_t unsent() const { return out_.size() - sent_; }
  void end_exchange();
  // Reports the current request as finished.
  void tell_finished(bool complete);

  HttpSessions& sessions_;
  Socket socket_;
  std::unique_ptr<TlsStream> tls_;         // null: plain HTTP
  std::string in_;                         // received, not parsed yet
  boost::asio::cancellation_signal wake_;  // cancels the reading side's pending wait
  Deadline read_deadline_;
  bool timed_out_ = false;
  bool reused_ = false;        // read_request() was called on this connection before
  bool client_ended_ = false;  // the client sends no more, but may still read
  bool lost_ = false;
  std::string peer_;     // the value of HttpRequest::peer
  std::string address_;  // the value of FinishedRequest::address

  // The state of the current request:
  std::shared_ptr<HttpExchange::State> exchange_;  // set while the request is being answered
  std::string head_lines_;                         // header lines that every answer to the request gets
  bool http_1_1_ = true;
  bool head_only_ = false;
  ErrorShape error_shape_ = ErrorShape::kOpenAi;  // the shape of errors for the request's path, once the path is known
  bool keep_alive_ = true;
  bool chunked_ = false;
  FinishedRequest finished_;  // the facts that are known so far
  // The time at which the request's first byte arrived. Until then, the time at which the session began to wait for the
  // request.
  Clock::time_point began_ = Clock::now();

  std::string out_;  // the bytes from sent_ on are not sent yet
  std::size_t sent_ = 0;
  bool writing_reads_ = false;  // TLS must receive bytes before it can send more
  bool socket_full_ = false;    // a wait for room in the socket is in progress
  Deadline write_deadline_;
  std::shared_ptr<HttpExchange::State> unsent_;  // an exchange that has ended, but whose answer is not fully sent
  MemoryCharge backlog_;                         // charge for a stream's events that the client has not taken
};

}  // namespace tessera
