#include "tessera/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <utility>

#include "tessera/comm/group.h"
#include "tessera/comm/node_ends.h"
#include "tessera/comm/stages.h"

namespace tessera {

// Receives the messages of other nodes. The ranks own the group. If a rank fails, a connection may outlive the group.
// Messages that arrive after the group was destroyed are dropped.
void Communicator::Group::take_frames_of(NodeGroup& from, const std::weak_ptr<Group>& group) {
  from.take(FrameKind::kTensors, [group](int node, std::vector<std::byte>& payload) {
    const std::shared_ptr<Group> owner = group.lock();
    return owner == nullptr ? ok_status() : owner->nodes->take_tensors(node, payload);
  });
  from.take(FrameKind::kResult, [group](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Group> owner = group.lock();
    return owner == nullptr ? ok_status() : owner->nodes->take_result(payload);
  });
  take_ends(from, group);
}

void Communicator::Stages::take_frames_of(NodeGroup& from, const std::weak_ptr<Stages>& stages) {
  from.take(FrameKind::kStageValue, [stages](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Stages> owner = stages.lock();
    return owner == nullptr ? ok_status() : owner->pipeline.take_value(payload);
  });
  from.take(FrameKind::kStageTaken, [stages](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Stages> owner = stages.lock();
    return owner == nullptr ? ok_status() : owner->pipeline.take_taken(payload);
  });
  take_ends(from, stages);
}

Communicator::Communicator(std::shared_ptr<Group> group, int rank, std::chrono::milliseconds limit)
    : group_(std::move(group)), rank_(rank), limit_(limit) {}

std::vector<std::unique_ptr<Communicator>> Communicator::create_stages(const RankLayout& layout,
                                                                       std::chrono::milliseconds limit,
                                                                       const std::shared_ptr<NodeGroup>& nodes) {
  const auto stages = std::make_shared<Stages>(layout, limit, nodes);
  if (nodes != nullptr) Stages::take_frames_of(*nodes, stages);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int place = 0; place < layout.ranks(); ++place) {
    const auto group = stages->groups.find(layout.stage_of(place));
    if (group == stages->groups.end()) continue;  // the stage is on another node
    members.push_back(
        std::unique_ptr<Communicator>(new Communicator(group->second, layout.rank_in_stage(place), limit)));
    members.back()->stages_ = stages;
    members.back()->place_ = place;
  }
  return members;
}

Communicator::~Communicator() { abort("its communicator is gone"); }

std::vector<std::unique_ptr<Communicator>> Communicator::create_group(int ranks, std::chrono::milliseconds limit) {
  return create_node_group(ranks, limit, nullptr);
}

std::vector<std::unique_ptr<Communicator>> Communicator::create_node_group(int ranks, std::chrono::milliseconds limit,
                                                                           const std::shared_ptr<NodeGroup>& nodes) {
  const auto group = std::make_shared<Group>(ranks, nodes);
  if (nodes != nullptr) Group::take_frames_of(*nodes, group);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int r = group->first; r < group->first + group->here; ++r)
    members.push_back(std::unique_ptr<Communicator>(new Communicator(group, r, limit)));
  return members;
}

int Communicator::ranks() const { return group_->size(); }
bool Communicator::spans_processes() const { return group_->nodes != nullptr; }
int Communicator::world_rank() const { return stages_ == nullptr ? rank_ : place_; }
int Communicator::world_size() const { return stages_ == nullptr ? ranks() : stages_->pipeline.layout().ranks(); }
Pipeline* Communicator::pipeline() { return stages_ == nullptr ? nullptr : &stages_->pipeline; }

std::int64_t Communicator::host_bytes() const {
  if (stages_ != nullptr) return stages_->pipeline.bytes(world_rank());
  if (group_->nodes == nullptr || !is_first_here()) return 0;
  return group_->nodes->bytes() + static_cast<std::int64_t>(group_->most_rows);
}

NodeGroup* Communicator::nodes() const {
  if (stages_ != nullptr) return stages_->nodes.get();
  return group_->nodes == nullptr ? nullptr : &group_->nodes->nodes();
}

// Ends the group, and tells the other nodes. The lock is not held while messages are sent, because sending may take
// time.
void Communicator::end_group(const Status& why) {
  if (!(stages_ != nullptr ? stages_->end_once(why) : group_->end_once(why))) return;
  if (NodeGroup* const others = nodes(); others != nullptr) tell_end(*others, why.message());
}

void Communicator::abort(std::string_view reason) {
  end_group(cancelled(fmt::format("rank {} of {} left the group: {}", world_rank(), world_size(), reason)));
}

Status Communicator::abort_on_error(Status status) {
  if (!status.ok()) abort(status.message());
  return status;
}

Status Communicator::restart() {
  const auto has_kernels = [](Group& group) {
    const std::lock_guard lock(group.mutex);
    return !group.flags.empty();
  };
  const bool kernels =
      stages_ == nullptr ? has_kernels(*group_)
                         : std::ranges::any_of(stages_->groups, [&](const auto& g) { return has_kernels(*g.second); });
  if (kernels) return failed_precondition("kernels on devices take part in the collectives, and cannot be restarted");
  NodeGroup* const others = nodes();
  const std::uint64_t last = stages_ != nullptr  ? stages_->pipeline.epoch()
                             : others != nullptr ? group_->nodes->epoch()
                                                 : 0;
  const std::uint64_t epoch = last + 1;
  stages_ != nullptr ? stages_->begin(epoch) : group_->begin(epoch);
  if (others == nullptr) return ok_status();
  return others->send_to_all(FrameKind::kRestart, std::array{std::as_bytes(std::span(&epoch, 1))});
}

Status Communicator::status() const {
  const std::lock_guard lock(group_->mutex);
  return group_->ended;
}

void Communicator::when_ended(std::function<void()> call) {
  const std::lock_guard lock(group_->mutex);
  group_->told = std::move(call);
}

void Communicator::raise_when_ended(std::atomic<std::uint32_t>* flag) {
  const std::lock_guard lock(group_->mutex);
  group_->flags.push_back(flag);
  if (!group_->ended.ok()) flag->store(1);
}

void Communicator::take_back(std::atomic<std::uint32_t>* flag) {
  const std::lock_guard lock(group_->mutex);
  std::erase(group_->flags, flag);
}

}  // namespace tessera
