// Threads of ranks that follow rank 0: each makes its host and carries out what comes through the channel.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/ops/comm/collective.h"
#include "tessera/runner/ranks/rank_channel.h"

namespace tessera {

class RankHost;

// Called on the rank's thread.
using MakeRankHost = std::function<std::unique_ptr<RankHost>(int rank)>;

class RankThreads {
 public:
  // Each message has its answer, also where the rank could not be made.
  void start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator, MakeRankHost make_host);
  // Waits for all threads; one that hangs for longer than `limit` is left behind with all that it works on, and an
  // error logged. Precondition: the channel is closed, and the communicator aborted.
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
