#include "tessera/runner/ranks/rank_threads.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/runner/ranks/rank_follower.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

void run_rank(RankChannel& channel, std::unique_ptr<Communicator> communicator, const MakeRankHost& make_host) {
  const int rank = communicator->world_rank();
  Status failed;
  try {
    std::unique_ptr<RankHost> host = make_host(rank);
    RankFollower(rank, channel, std::move(communicator), std::move(host)).run();
    return;
  } catch (const std::exception& e) {
    failed = device_lost(fmt::format("its thread ended by an exception: {}", e.what()));
  }
  while (const std::optional<RankChannel::Message> message = channel.receive(rank))
    channel.reply(rank, message->number, {.status = failed});
}

}  // namespace

void RankThreads::start(std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator,
                        MakeRankHost make_host) {
  const int rank = communicator->world_rank();
  std::packaged_task<void()> run(
      [channel = std::move(channel), communicator = std::move(communicator),
       make_host = std::move(make_host)]() mutable { run_rank(*channel, std::move(communicator), make_host); });
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
