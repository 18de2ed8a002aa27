#include "tessera/runner/followers/rank_host.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <utility>

#include "tessera/runner/followers/rank_follower.h"

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

RankBody following(MakeRankHost make_host) {
  return [make_host = std::move(make_host)](RankChannel& channel, std::unique_ptr<Communicator> communicator) {
    run_rank(channel, std::move(communicator), make_host);
  };
}

}  // namespace tessera
