// One HTTP request: its route, its arrival time, and its answer. An answer is counted in the metrics and logged.
//
// Threads: as for HttpExchange (http.h). Copies are handles to the same exchange.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"
#include "tessera/server/metrics/metrics.h"

namespace tessera {

class Call {
 public:
  using Clock = std::chrono::steady_clock;

  // `route` is one of a few constants, never text from the client. `route` and `metrics` outlive the call.
  Call(HttpExchange exchange, std::string_view route, ServerMetrics& metrics, bool logged)
      : exchange_(std::move(exchange)), route_(route), metrics_(&metrics), logged_(logged) {}

  const HttpRequest& request() const { return exchange_.request(); }
  std::string take_body() { return exchange_.take_body(); }
  MemoryCharge& memory() const { return exchange_.memory(); }
  GenerationFacts& generation() const { return exchange_.generation(); }
  std::string_view route() const { return route_; }
  Clock::time_point arrived() const { return arrived_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - arrived_).count(); }

  // Returns the encoding that the client accepts for an answer (body_encoder.h), and charges the encoder's memory.
  // Returns "" if the client accepts none, or if there is no memory. The metrics do not count that as a refusal.
  std::string_view affordable_coding() const;

  // Answers the request. A body of 4 KiB or more is compressed if the client accepts that. A body of more than 64 KiB
  // is then sent in chunks. `detail` is for the log: what was done, or why nothing was done.
  void respond(HttpResponse response, std::string_view detail = {}) const;
  // Answers with JSON. `note` is the value of the header X-Tessera-Note, or "" for no such header. `coding` is the
  // encoding of a body that is already compressed, and otherwise "".
  void respond_json(std::string body, std::string_view detail = {}, std::string_view note = {},
                    std::string_view coding = {}) const;
  void refuse(const ApiError& error) const;

  // Starts a stream. `content_type` is, for example, "text/event-stream". `first` is sent with the head.
  void start_stream(std::string first, std::string_view content_type, std::string_view note = {}) const;
  // Starts a JSON body whose length is not known yet. write() adds the rest.
  void start_json(std::string first, std::string_view note = {}, std::string_view coding = {}) const;
  void write(std::string_view data) const { exchange_.write(data); }
  void on_sent(std::function<void()> callback) const { exchange_.on_sent(std::move(callback)); }
  void finish(std::string_view detail) const;
  // Answers with the error, or ends the connection if an answer has begun and cannot go on.
  void fail(const ApiError& error) const;

  void on_disconnect(std::function<void()> callback) const { exchange_.on_disconnect(std::move(callback)); }
  void log(int status, std::string_view detail) const;

 private:
  struct EncodedBody;
  std::string_view accepted_coding() const;
  void respond_in_parts(HttpResponse response) const;
  void send_rest(const std::shared_ptr<EncodedBody>& parts) const;
  void start(HttpResponse response, std::string_view note) const;

  HttpExchange exchange_;
  std::string_view route_;
  ServerMetrics* metrics_;
  bool logged_;
  Clock::time_point arrived_ = Clock::now();
};

}  // namespace tessera
