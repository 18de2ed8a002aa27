// The threads of ranks that follow rank 0. Each thread makes its RankHost and carries out the messages of the channel.
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

class RankHost;

// Makes the host of a rank; called on the rank's thread.
using MakeRankHost = std::function<std::unique_ptr<RankHost>(int rank)>;

class RankThreads {
 public:
  // Starts a rank's thread. Every message gets an answer, even if the rank's host could not be made.
  void start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator, MakeRankHost make_host);
  // Waits for all threads. Abandons a thread that hangs for longer than `limit` together with everything it uses, and
  // logs an error. Precondition: the channel is closed, and the communicator aborted.
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
