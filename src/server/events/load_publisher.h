// Publishes the loads of a server's engines on a thread of its own. Each engine has a PUB socket. A load that has
// changed is sent within kCheck, and an unchanged load is sent again after kRepeat. If a subscriber reads too slowly,
// it misses loads. The next load that it reads replaces them. An engine that has failed for good publishes nothing
// more. Its load would be all zeros, so gateways would send requests to this engine.
//
//   std::unique_ptr<LoadPublisher> loads = TRY(LoadPublisher::start(endpoint, engines, max_running, read));
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/stats/engine_stats.h"
#include "tessera/server/events/load_message.h"
#include "tessera/server/events/zmq_context.h"

namespace tessera {

class LoadPublisher {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr const char* kTopic = "load";
  static constexpr std::chrono::milliseconds kCheck{20};
  static constexpr std::chrono::seconds kRepeat{1};

  // Returns the statistics of the engine `rank`, or nothing if the engine has failed for good. The publisher's thread
  // calls this function.
  using Read = std::function<std::optional<EngineStats>(int rank)>;

  // Publishes at `endpoint` (see load_endpoint()) until the object is destroyed. `max_running_requests` is the limit of
  // one engine. Errors: libzmq is missing, or an address is in use.
  static Result<std::unique_ptr<LoadPublisher>> start(const std::string& endpoint, int engines,
                                                      std::int64_t max_running_requests, Read read);
  ~LoadPublisher();
  LoadPublisher(const LoadPublisher&) = delete;
  LoadPublisher& operator=(const LoadPublisher&) = delete;

 private:
  struct Engine {
    void* socket = nullptr;
    std::uint64_t next_number = 0;
    std::optional<PublishedLoad> sent{};  // none before the first message
    Clock::time_point sent_at{};
  };
  friend Status check_load_endpoint(const std::string& endpoint, int engines);
  LoadPublisher() = default;
  Status open(const std::string& endpoint, int engines);
  void work();
  void publish(Clock::time_point now);

  std::unique_ptr<ZmqContext> context_;
  std::vector<Engine> engines_;
  std::int64_t max_running_requests_ = 0;
  Read read_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;  // guarded by mutex_
  std::thread thread_;   // last member, because the thread uses the other members
};

// Checks that `engines` engines can publish their loads at the endpoint. Accepts the endpoint "", at which nothing is
// published. Errors: libzmq is missing, or an address is in use.
Status check_load_endpoint(const std::string& endpoint, int engines);

}  // namespace tessera
