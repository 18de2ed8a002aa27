// One connection of the HTTP server: reads a request, has it answered, reads the next. Private to http*.cpp.
//
// Two sides, both on the I/O thread. The reading side is a coroutine; while a request is being answered it goes on
// reading, a little ahead, so that it notices when the client goes. The writing side is a buffer that is sent as far as
// the socket takes it, at once and then each time it takes more.
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
#include "tessera/server/work/memory_budget.h"

namespace tessera {

class HttpSession;

// What the sessions of a server share; outlives them.
struct HttpSessions {
  HttpOptions options{};
  HttpServer::Handler handler{};
  bool loopback = false;      // the server listens on a loopback address alone
  bool stopping = false;      // each answer is its connection's last
  bool closing = false;       // no further request is read
  std::size_t answering = 0;  // exchanges under way
  std::unordered_set<HttpSession*> alive{};
  std::function<void()> one_ended{};  // a session, or an exchange
  boost::asio::io_context io{1};      // last: sessions that end with it look at the others
};

// A request that is being answered, or has been.
class HttpExchange::State {
 public:
  HttpRequest request{};
  MemoryCharge memory{};
  HttpSession* session = nullptr;  // null: the answer has ended, or the client has gone
  bool started = false;            // respond() or start_stream()
  bool lost = false;               // the client went before the answer's end
  std::function<void()> on_disconnect{};
  std::function<void()> on_sent{};
};

// Runs a callback; an exception is logged.
void call_guarded(const std::function<void()>& function);

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  HttpSession(HttpSessions& sessions, Socket socket);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  // Serves until the connection ends. It lives as long as something on the I/O thread waits for it.
  void start();
  // Called instead of start(): answers that there are too many connections.
  void start_refusing();
  // Ends after the current answer, or where there is none once what has arrived is answered.
  void drain();
  // Answers the current exchange with 503, or loses the connection where its answer has begun.
  void give_up();
  // Ends now; the client counts as gone. May be called at any time.
  void lose();

  // HttpExchange's. Precondition: the exchange has not ended.
  void respond(HttpResponse response);
  void start_stream(const HttpResponse& response);
  void write(std::string_view data);
  void on_sent(std::function<void()> callback);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Reader;  // the parser, the fields of the head, and the body's charge

  // A time that can be moved cheaply, and the function that is called when it passes.
  struct Deadline {
    boost::asio::steady_timer timer;
    void (HttpSession::*passed)();
    Clock::time_point at = Clock::time_point::max();
    bool waiting = false;
  };
  void set(Deadline& deadline, double seconds);
  void wait_for(Deadline& deadline);
  void read_deadline_passed();

  // The reading side (http_reading.cpp).
  template <class T>
  using Task = boost::asio::awaitable<T>;
  enum class Read { kData, kEnd, kWoken, kLost };
  enum class Asked { kWhole, kAnswered, kNothing };
  void spawn(bool refused);
  Task<void> serve(bool refused);
  Task<bool> serve_one();
  Task<Asked> read_request();
  Task<bool> parse(Reader& reader, bool whole);
  Task<Read> read_some(std::size_t size);
  Task<void> watch();
  Task<void> linger();
  void probe();
  bool skip_blank_lines(Reader& reader);
  bool wait_is_over(bool idle, bool whole);
  bool has_arrived();
  bool refuse_unparsed(boost::system::error_code error);
  bool accept_head(Reader& reader);
  bool answer_head(Reader& reader);
  bool skip_body(Reader& reader);
  bool charge_body(Reader& reader);
  void call_handler();

  // The writing side.
  // Answers the exchange in the handler's place.
  void respond_instead(HttpResponse response);
  // Answers a request that is no exchange.
  void send_answer(HttpResponse response);
  void tell_own_answer(int status) const;
  // Answers a request that never became an exchange, and closes the connection. Returns false.
  bool refuse(const ApiError& error);
  bool refuse(int status, const std::string& message);
  // The handler failed: answers 500 where nothing was answered yet, else breaks the connection off.
  void fail_exchange();
  std::string head_of(const HttpResponse& response, BodyFraming framing);
  void send(std::string_view data);
  void send_body(std::string_view data);
  void send_whole(std::string head, std::string body);
  void call_on_sent();
  void make_room();
  void flush();
  void wait_for_room();
  std::size_t unsent() const { return out_.size() - sent_; }
  void end_exchange();

  HttpSessions& sessions_;
  Socket socket_;
  std::string in_;                         // received and not parsed yet
  boost::asio::cancellation_signal wake_;  // ends what the reading side waits for
  Deadline read_deadline_;
  bool timed_out_ = false;
  bool reused_ = false;        // a request was answered before
  bool client_ended_ = false;  // it sends no more, and may still read
  bool lost_ = false;
  std::string peer_;  // HttpRequest::peer

  // Of the request at hand:
  std::shared_ptr<HttpExchange::State> exchange_;  // while it is being answered
  std::string head_lines_;                         // that every answer to it has
  bool http_1_1_ = true;
  bool head_only_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;

  std::string out_;  // not sent from sent_ on
  std::size_t sent_ = 0;
  bool socket_full_ = false;  // and a wait for room is under way
  Deadline write_deadline_;
  std::shared_ptr<HttpExchange::State> unsent_;  // whose answer is complete and not sent to its end
  MemoryCharge backlog_;                         // of a stream's events that the client has not taken
};

}  // namespace tessera
