#include "tessera/runner/ranks/rank_threads.h"

#include <utility>

#include "tessera/base/log.h"

namespace tessera {

void RankThreads::start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator,
                        RankBody body) {
  const int rank = communicator->world_rank();
  std::packaged_task<void()> run([channel = std::move(channel), communicator = std::move(communicator),
                                  body = std::move(body)]() mutable { body(*channel, std::move(communicator)); });
  std::future<void> ended = run.get_future();
  threads_.push_back({.rank = rank, .thread = std::thread(std::move(run)), .ended = std::move(ended)});
}

void RankThreads::join(std::chrono::milliseconds limit) {
  for (Thread& t : threads_) {
    if (t.ended.wait_for(limit) == std::future_status::ready) {
      t.thread.join();
    } else {
      log_error("engine", "rank {} hangs; its thread is abandoned", t.rank);
      t.thread.detach();
    }
  }
  threads_.clear();
}

}  // namespace tessera
