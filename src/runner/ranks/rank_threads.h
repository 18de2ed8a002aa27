// The threads of the ranks that follow rank 0. Each thread receives rank 0's messages from a RankChannel, carries them
// out, and answers them.
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

// The function that a rank's thread runs. Until the channel is closed, it receives the channel's messages for the
// communicator's rank and answers them.
using RankBody = std::function<void(RankChannel& channel, std::unique_ptr<Communicator> communicator)>;

class RankThreads {
 public:
  // Starts a rank's thread.
  void start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator, RankBody body);
  // Waits for each thread up to `limit`. If a thread has not ended by then, logs an error and abandons the thread. An
  // abandoned thread keeps running, and everything that it uses stays in memory. Precondition: the channel is closed,
  // and the communicator aborted.
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
