// The threads of ranks that follow rank 0. Each thread carries out the messages of the channel.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/rank_channel.h"

namespace tessera {

// Receives and answers the channel's messages for the rank of the communicator, until the channel is closed. Called on
// that rank's thread.
using RankBody = std::function<void(RankChannel& channel, std::unique_ptr<Communicator> communicator)>;

class RankThreads {
 public:
  // Starts a rank's thread.
  void start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator, RankBody body);
  // Waits for all threads, for up to `limit` each. If a thread has not ended by then, logs an error and abandons the
  // thread: it keeps running, and everything that it uses stays in memory. Precondition: the channel is closed, and the
  // communicator aborted.
  void join(std::chrono::milliseconds limit);

 private:
  struct Thread {
    int rank;
    std::thread thread;
    std::future<void> ended;
  };
  std::vector<Thread> threads_;
};

}  // namespace tessera
