#include "tessera/server/events/load_publisher.h"

#include <exception>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/events/kv_events_options.h"

namespace tessera {
namespace {

// The maximum number of messages that wait for a subscriber that does not read. The number is small, because old loads
// are of no use.
constexpr std::int64_t kMostWaiting = 8;

}  // namespace

Status LoadPublisher::open(const std::string& endpoint, int engines) {
  context_ = TRY(ZmqContext::create());
  for (int rank = 0; rank < engines; ++rank) {
    void* const socket =
        TRY(context_->open(endpoint_of(endpoint, rank), {.type = ZMQ_PUB, .listens = true, .waiting = kMostWaiting}));
    engines_.push_back({.socket = socket});
  }
  return ok_status();
}

Result<std::unique_ptr<LoadPublisher>> LoadPublisher::start(const std::string& endpoint, int engines,
                                                            std::int64_t max_running_requests, Read read) {
  std::unique_ptr<LoadPublisher> publisher(new LoadPublisher);
  TRY(publisher->open(endpoint, engines));
  publisher->max_running_requests_ = max_running_requests;
  publisher->read_ = std::move(read);
  publisher->thread_ = std::thread([&made = *publisher] { made.work(); });
  log_info("server", "loads are published at {}", endpoint);
  return publisher;
}

LoadPublisher::~LoadPublisher() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void LoadPublisher::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    try {
      publish(Clock::now());
    } catch (const std::exception& e) {  // usually std::bad_alloc
      log_warn("server", "the loads could not be published: {}", e.what());
    }
    lock.lock();
    wake_.wait_for(lock, kCheck, [this] { return ending_; });
  }
}

void LoadPublisher::publish(Clock::time_point now) {
  for (std::size_t index = 0; index < engines_.size(); ++index) {
    Engine& engine = engines_[index];
    const int rank = static_cast<int>(index);
    const std::optional<EngineStats> stats = read_(rank);
    if (!stats) continue;
    const PublishedLoad load{
        .numbers = load_numbers(*stats), .max_running_requests = max_running_requests_, .prefill = stats->prefill};
    if (engine.sent == load && now - engine.sent_at < kRepeat) continue;
    const std::string message = load_message(load, rank);
    (void)context_->send(engine.socket, {kTopic, number_bytes(engine.next_number), message});
    ++engine.next_number;
    engine.sent = load;
    engine.sent_at = now;
  }
}

Status check_load_endpoint(const std::string& endpoint, int engines) {
  if (endpoint.empty()) return ok_status();
  LoadPublisher publisher;
  return publisher.open(endpoint, engines);
}

}  // namespace tessera
