// One HTTP request: its route, when it arrived, and how it is answered. Answering counts it in the metrics and logs it.
//
// Threads: as HttpExchange; copies are handles to the same exchange.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http.h"
#include "tessera/server/report/metrics.h"

namespace tessera {

class Call {
 public:
  using Clock = std::chrono::steady_clock;

  // `route` is one of few, whatever the client sent, and lives as long as the call, as `metrics` does.
  Call(HttpExchange exchange, std::string_view route, ServerMetrics& metrics, bool logged)
      : exchange_(std::move(exchange)), route_(route), metrics_(&metrics), logged_(logged) {}

  const HttpRequest& request() const { return exchange_.request(); }
  std::string take_body() { return exchange_.take_body(); }
  MemoryCharge& memory() const { return exchange_.memory(); }
  std::string_view route() const { return route_; }
  Clock::time_point arrived() const { return arrived_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - arrived_).count(); }

  // `detail` is for the log: what was done, or why not.
  void respond(HttpResponse response, std::string_view detail = {}) const;
  // `note`: for the client, in the header X-Tessera-Note; "": none.
  void respond_json(std::string body, std::string_view detail = {}, std::string_view note = {}) const;
  void refuse(const ApiError& error) const;

  // Server-sent events; `first` goes with the head.
  void start_stream(std::string first, std::string_view note = {}) const;
  // JSON of a length that is not known yet; more follows by write().
  void start_json(std::string first, std::string_view note = {}) const;
  void write(std::string_view data) const { exchange_.write(data); }
  void on_sent(std::function<void()> callback) const { exchange_.on_sent(std::move(callback)); }
  void finish(std::string_view detail) const;
  // Refuses, or ends the connection where the answer has begun and cannot go on.
  void fail(const ApiError& error) const;

  void on_disconnect(std::function<void()> callback) const { exchange_.on_disconnect(std::move(callback)); }
  void log(int status, std::string_view detail) const;

 private:
  void start(HttpResponse response, std::string_view note) const;

  HttpExchange exchange_;
  std::string_view route_;
  ServerMetrics* metrics_;
  bool logged_;
  Clock::time_point arrived_ = Clock::now();
};

}  // namespace tessera
