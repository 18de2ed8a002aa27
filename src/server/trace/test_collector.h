// A collector of spans for tests.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {

// A collector that answers with `status` and records the bodies that it receives.
class Collector {
 public:
  explicit Collector(int status = 200)
      : status_(status), server_([this](const HttpExchange& exchange) { take(exchange); }) {}
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  void answer_with(int status) { status_ = status; }
  std::size_t posts() const {
    const std::lock_guard lock(mutex_);
    return bodies_.size();
  }
  // Returns the bodies of all requests so far.
  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return bodies_.empty() ? "" : bodies_.back();
  }
  std::string path() const {
    const std::lock_guard lock(mutex_);
    return path_;
  }
  std::string key() const {
    const std::lock_guard lock(mutex_);
    return key_;
  }

 private:
  void take(const HttpExchange& exchange) {
    const std::lock_guard lock(mutex_);
    path_ = exchange.request().path;
    key_ = exchange.request().header("x-key");
    bodies_.push_back(exchange.request().body);
    exchange.respond({.status = status_, .body = "{}", .headers = {}});
  }
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::string path_;
  std::string key_;
  std::atomic<int> status_;
  TestServer server_;
};

}  // namespace tessera::testing
