// Publishes the events of one engine's prefix cache on a thread of its own. Batches of events wait for the thread in a
// bounded queue and have successive numbers. If the queue is full, a new batch is dropped. Subscribers then never see
// the number of this batch, and cannot have the batch sent again.
//
// Threads: any thread may call every function.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/server/events/event_message.h"
#include "tessera/server/events/event_sockets.h"

namespace tessera {

class EventPublisher {
 public:
  // `page_size` is the number of tokens in a block. Errors are those of EventSockets::open().
  static Result<std::unique_ptr<EventPublisher>> create(const KvEventsOptions& options, int rank,
                                                        std::int64_t page_size);
  // Sends the waiting batches.
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  // Adds a batch to the queue. Drops the batch if the queue is full or memory runs out. Never waits for a subscriber.
  void add(CacheEvents events) noexcept;

  std::int64_t published() const { return published_; }
  std::int64_t dropped() const { return dropped_; }
  std::int64_t replayed() const { return replayed_; }

 private:
  struct Waiting {
    std::uint64_t number = 0;
    EventBatch batch{};
  };
  EventPublisher(std::unique_ptr<EventSockets> sockets, const KvEventsOptions& options, int rank,
                 std::int64_t page_size);
  void work();
  // Moves all batches from the queue to `waiting`, possibly none. Returns false if the queue was empty and the
  // publisher is being destroyed.
  bool take(std::vector<Waiting>& waiting);
  void publish(const Waiting& waiting);
  void replay();

  const std::unique_ptr<EventSockets> sockets_;
  const std::size_t most_kept_;
  const std::size_t most_waiting_;
  const int rank_;
  const std::int64_t page_size_;
  std::deque<std::pair<std::uint64_t, std::string>> kept_;  // messages for replays; used only by `thread_`
  std::atomic<std::int64_t> published_ = 0;
  std::atomic<std::int64_t> dropped_ = 0;
  std::atomic<std::int64_t> replayed_ = 0;

  std::mutex mutex_;
  std::vector<Waiting> waiting_;   // guarded by mutex_
  std::uint64_t next_number_ = 0;  // guarded by mutex_
  bool ending_ = false;            // guarded by mutex_
  std::thread thread_;             // last member, because the thread uses the other members
};

}  // namespace tessera
