#include "tessera/runner/ranks/rank_node.h"

#include <fmt/format.h>

#include <array>
#include <future>
#include <utility>
#include <vector>

#include "tessera/runner/ranks/rank_group.h"
#include "tessera/runner/ranks/rank_wire.h"

namespace tessera {
namespace {

// Passes an order of node 0 to the ranks of this process. begin() waits until all ranks here have answered the previous
// message in the same slot of the channel. Normally this wait is short: node 0 sends this order only after it has
// received these answers, and this channel records an answer right after the rank has sent it to node 0 (OnReply). If
// node 0 sends the order too early, begin() waits up to the channel's limit.
Status pass_on(RankChannel& channel, std::vector<std::byte>& order) {
  std::vector<std::byte>& message = *TRY(channel.begin());
  message.swap(order);
  channel.send();
  return ok_status();
}

}  // namespace

Status follow_node_0(const RankNodeOptions& options) {
  NodeGroup& nodes = *options.nodes;
  std::vector<std::unique_ptr<Communicator>> communicators =
      options.layout.pp_size > 1
          ? Communicator::create_stages(options.layout, options.limit, options.nodes)
          : Communicator::create_node_group(options.layout.ranks(), options.limit, options.nodes);
  const int first = communicators.front()->world_rank();
  const RankChannel::Followers here{.first = first, .end = first + static_cast<int>(communicators.size())};
  const auto answer = [to = options.nodes](int rank, std::uint64_t number, const RankAnswer& made) {
    const auto send = [&](const RankAnswer& answered) {
      const std::vector<std::byte> bytes = pack_answer(rank, number, answered);
      return to->send(0, FrameKind::kAnswer, std::array{std::span<const std::byte>(bytes)});
    };
    // If node 0 is lost, no answer is needed. If the answer is too long for a frame, the send fails, and node 0 gets
    // the send's error in place of the answer.
    const Status sent = send(made);
    if (!sent.ok() && sent.code() != StatusCode::kDeviceLost) (void)send({.status = sent});
  };
  const auto channel = std::make_shared<RankChannel>(here, options.layout.ranks(), options.limit, answer);
  nodes.take(FrameKind::kOrder, [&to = *channel](int, std::vector<std::byte>& order) { return pass_on(to, order); });
  std::promise<Status> ended;
  nodes.when_ended([&ended](int, const Status& why) { ended.set_value(why); });
  nodes.start();
  RankThreads threads;
  for (std::unique_ptr<Communicator>& communicator : communicators)
    threads.start(channel, std::move(communicator), options.body);
  Status why = ended.get_future().get();  // the thread that ended the group has also aborted the collectives
  channel->close();
  nodes.end();
  threads.join(options.limit);
  return why;
}

}  // namespace tessera
