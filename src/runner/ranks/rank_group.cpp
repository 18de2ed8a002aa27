#include "tessera/runner/ranks/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>

#include "tessera/runner/ranks/adapter_order.h"
#include "tessera/runner/ranks/rank_wire.h"

namespace tessera {
namespace {

// Returns the error of a group that ended because `node` was lost.
Status lost_with(const std::string& node, const Status& why) {
  try {
    return why.ok() ? device_lost(node + " is gone: the node left the group") : why;
  } catch (const std::exception&) {  // too little memory for a longer message
    return device_lost("a node is gone");
  }
}

}  // namespace

std::unique_ptr<RankGroup> RankGroup::start(Options options) {
  const RankLayout layout{.tp_size = options.ranks / options.stages, .pp_size = options.stages};
  std::vector<std::unique_ptr<Communicator>> communicators =
      options.stages > 1 ? Communicator::create_stages(layout, options.limit, options.nodes)
                         : Communicator::create_node_group(options.ranks, options.limit, options.nodes);
  const auto channel = std::make_shared<RankChannel>(options.ranks, options.limit);
  std::unique_ptr<RankGroup> group(new RankGroup(layout, channel, std::move(communicators[0]), options.nodes));
  if (options.nodes != nullptr) group->start_nodes(static_cast<int>(communicators.size()));
  for (std::size_t i = 1; i < communicators.size(); ++i)
    group->threads_.start(channel, std::move(communicators[i]), options.body);
  return group;
}

// Sets the handlers for messages of other nodes. The handlers may refer to this group, because it outlives the threads
// that call them.
void RankGroup::start_nodes(int ranks_here) {
  nodes_->take(FrameKind::kAnswer, [this, ranks_here](int node, std::vector<std::byte>& payload) -> Status {
    WiredAnswer wired = TRY(unpack_answer(payload));
    if (wired.rank / ranks_here != node)
      return data_loss(fmt::format("it sent an answer of rank {}, which is not its own", wired.rank));
    return channel_->take_reply(wired.rank, wired.number, std::move(wired.answer));
  });
  nodes_->when_ended([this](int node, const Status& why) {
    channel_->lose(lost_with(nodes_->name(node), why));
    {
      const std::lock_guard lock(when_lost_mutex_);
      if (when_lost_) when_lost_();
    }
    // Without the lost ranks, the other nodes cannot compute anything, so they are told to leave the group. Their
    // processes then end, and a supervisor can restart them.
    nodes_->leave(channel_->lost());
  });
  nodes_->start();
}

RankGroup::~RankGroup() {
  channel_->close();
  communicator_->abort("the model is given up");
  if (nodes_ != nullptr) nodes_->end();
  threads_.join(channel_->limit());
}

void RankGroup::when_lost(std::function<void()> call) {
  const std::lock_guard lock(when_lost_mutex_);
  when_lost_ = std::move(call);
}

Status RankGroup::health() const { return lost_.ok() ? channel_->lost() : lost_; }

template <class Pack>
Result<std::uint64_t> RankGroup::send(RankOrderKind kind, const Pack& pack, std::shared_ptr<const void> beside) {
  TRY(health());
  std::vector<std::byte>& message = *TRY(channel_->begin());
  MessageWriter writer(message, static_cast<std::uint32_t>(kind), channel_->next_number());
  pack(writer);
  writer.finish();
  if (nodes_ != nullptr && message.size() > kMostFrameBytes)
    return resource_exhausted(fmt::format("a message of {} bytes to the ranks of other nodes; {} are accepted",
                                          message.size(), kMostFrameBytes));
  if (kind == RankOrderKind::kForward) last_forward_ = &message;
  const std::uint64_t number = channel_->send(std::move(beside));
  // The result of send_to_all() is ignored. A node that does not get the message counts as lost, and wait() returns the
  // error. The message stays valid until all ranks have answered.
  if (nodes_ != nullptr) (void)nodes_->send_to_all(FrameKind::kOrder, std::array{std::span<const std::byte>(message)});
  return number;
}

Result<std::uint64_t> RankGroup::send(const RankOrder& order) {
  if (before_orders_ && order.kind != RankOrderKind::kCollect) before_orders_();
  return send(order.kind, [&](MessageWriter& writer) { pack_order(order, writer); });
}

Status RankGroup::wait(std::uint64_t number, std::chrono::milliseconds limit) {
  TRY(lost_);
  Status waited = channel_->wait(number, limit);
  if (waited.ok()) return waited;
  lost_ = waited;
  communicator_->abort(lost_.message());
  return waited;
}

// Returns the most serious error, or the earliest of equally serious ones. kDeviceLost is the most serious error.
// kCancelled is the least serious error, because a rank reports it when another rank caused the failure.
ForwardEnd RankGroup::first_failure(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const {
  const auto weight = [](const Status& status) {
    switch (status.code()) {
      case StatusCode::kOk: return 0;
      case StatusCode::kCancelled: return 1;
      case StatusCode::kDeviceLost: return 3;
      default: return 2;
    }
  };
  int rank = 0;
  const Status* status = &own.status;
  bool replay_failed = own.replay_failed;
  for (const std::uint64_t number : numbers) {
    for (int r = 1; r < ranks(); ++r) {
      const RankAnswer& answer = channel_->answer(number, r);
      if (weight(answer.status) <= weight(*status)) continue;
      rank = r;
      status = &answer.status;
      replay_failed = answer.replay_failed;
    }
  }
  if (status->ok()) return {};
  if (status->code() == StatusCode::kCancelled) return {*status, false};
  return {status->with_context(fmt::format("rank {} of {}", rank, ranks())), replay_failed};
}

ForwardEnd RankGroup::cause(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const {
  ForwardEnd end = first_failure(numbers, own);
  if (end.status.code() == StatusCode::kCancelled) end.status = internal_error(end.status.message());
  return end;
}

// Restarts the communicator after a fault. All ranks have answered, so no rank is inside a collective operation. If the
// restart fails, the group ends, because later results could be wrong: a GPU with a broken connection stops waiting,
// computes on incomplete data and reports no error.
void RankGroup::restart() {
  if (!lost_.ok() || communicator_->status().ok()) return;
  const Status again = communicator_->restart();
  if (!again.ok())
    lost_ = device_lost(fmt::format("the ranks cannot go on after a fault ({}): {}", communicator_->status().message(),
                                    again.message()));
}

Status RankGroup::finish(Result<std::uint64_t> number, const std::function<Status()>& local) {
  if (!number.ok()) return std::move(number).status();
  alone_ = true;
  const Status own = local();
  alone_ = false;
  if (!own.ok()) communicator_->abort(own.message());
  TRY(wait(*number));
  return settle(cause(std::span(&*number, 1), {.status = own})).status;
}

ForwardEnd RankGroup::settle(ForwardEnd end) {
  restart();
  if (end.status.ok()) end.status = lost_;
  if (end.status.code() == StatusCode::kDeviceLost) lost_ = end.status;
  return end;
}

Status RankGroup::together(const RankOrder& order, const std::function<Status()>& local) {
  return alone_ ? local() : finish(send(order), local);
}

Result<std::vector<RankLimits>> RankGroup::plans(std::int64_t max_running) {
  const std::uint64_t number = TRY(send({.kind = RankOrderKind::kPlan, .size = max_running}));
  TRY(wait(number));
  TRY(cause(std::span(&number, 1), {}).status);
  std::vector<RankLimits> limits;
  for (int rank = 1; rank < ranks(); ++rank) {
    MessageReader reader = TRY(MessageReader::open(channel_->answer(number, rank).content));
    limits.push_back(TRY(unpack_limits(reader)));
  }
  return limits;
}

Result<RankLimits> RankGroup::agree(RankLimits own, const PlanAgain& plan) {
  std::vector<RankLimits> others = TRY(plans(0));
  const auto [least, most] = std::ranges::minmax(others, {}, &RankLimits::max_running);
  const std::int64_t fewest = std::min(own.max_running, least.max_running);
  if (plan && fewest != std::max(own.max_running, most.max_running)) {
    own = TRY(plan(fewest));
    others = TRY(plans(fewest));
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    TRY(own.agree(others[i]).with_context(fmt::format("rank {} of {}", i + 1, ranks())));
  return own;
}

Status RankGroup::load(const RankLimits& agreed, const std::function<Status()>& local) {
  const std::uint64_t number =
      TRY(send(RankOrderKind::kLoad, [&](MessageWriter& writer) { pack_limits(agreed, writer); }));
  if (Status own = local(); !own.ok()) {
    lost_ = device_lost(fmt::format("rank 0 could not load: {}", own.message()));
    communicator_->abort(own.message());
    return std::move(own).with_context(fmt::format("rank 0 of {}", ranks()));
  }
  TRY(wait(number, kLoadLimit));
  return cause(std::span(&number, 1), {}).status;
}

Result<std::int64_t> RankGroup::least(const RankOrder& order, std::int64_t own) {
  if (alone_) return own;
  const std::uint64_t number = TRY(send(order));
  TRY(wait(number));
  TRY(cause(std::span(&number, 1), {}).status);
  for (int rank = 1; rank < ranks(); ++rank) own = std::min(own, channel_->answer(number, rank).value);
  return own;
}

Status RankGroup::encode_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                                const std::function<Status()>& local) {
  if (alone_) return local();
  return finish(
      send(RankOrderKind::kEncodeImages, [&](MessageWriter& writer) { pack_images(images, first_rows, writer); }),
      local);
}

Status RankGroup::write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter,
                                const std::function<Status()>& local) {
  if (before_orders_) before_orders_();
  const auto pack = [&](MessageWriter& writer) {
    writer.word(slot);
    if (nodes_ != nullptr) pack_shares(*adapter, writer);
  };
  return finish(send(RankOrderKind::kWriteAdapter, pack, nodes_ == nullptr ? adapter : nullptr), local);
}

Result<std::vector<MemoryReport>> RankGroup::memory() {
  const std::uint64_t number = TRY(send({.kind = RankOrderKind::kMemory}));
  TRY(wait(number));
  TRY(cause(std::span(&number, 1), {}).status);
  std::vector<MemoryReport> reports;
  for (int rank = 1; rank < ranks(); ++rank) {
    MessageReader reader = TRY(MessageReader::open(channel_->answer(number, rank).content));
    reports.push_back(TRY(unpack_memory(reader)));
  }
  return reports;
}

Result<std::uint64_t> RankGroup::send_forward(const ForwardInputs& inputs, const Decision& decision) {
  return send(RankOrderKind::kForward, [&](MessageWriter& writer) { packer_.pack(inputs, decision, writer); });
}

Result<std::uint64_t> RankGroup::send_draft_inputs(const DraftInputs& inputs) {
  return send(RankOrderKind::kReadDrafts, [&](MessageWriter& writer) { draft_packer_.pack(inputs, writer); });
}

Result<std::uint64_t> RankGroup::send_draft_rows(const DraftRows& rows) {
  return send(RankOrderKind::kDraft, [&](MessageWriter& writer) { pack_draft_rows(rows, writer); });
}

// Compares the digests of the last stage's ranks. The ranks of earlier pipeline stages return no results, but a fault
// on them changes the results of the last stage.
Status RankGroup::same_results(std::uint64_t number, std::uint64_t digest) const {
  for (int rank = 1; rank < layout_.tp_size; ++rank) {
    if (channel_->answer(number, rank).digest == digest) continue;
    return internal_error(fmt::format(
        "the results of rank {} of {} differ from those of rank 0; all ranks must hold the same bits", rank, ranks()));
  }
  return ok_status();
}

}  // namespace tessera
