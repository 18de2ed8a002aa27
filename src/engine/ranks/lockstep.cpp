#include "tessera/engine/ranks/lockstep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/comm/introduction.h"

namespace tessera {

namespace {

constexpr int kNobody = -1;

}  // namespace

std::shared_ptr<Lockstep> Lockstep::create(int ranks, std::chrono::milliseconds limit,
                                           std::shared_ptr<NodeGroup> nodes) {
  std::vector<std::unique_ptr<Communicator>> group = Communicator::create_node_group(ranks, limit, nodes);
  return std::shared_ptr<Lockstep>(new Lockstep(std::move(group), std::move(nodes)));
}

Lockstep::Lockstep(std::vector<std::unique_ptr<Communicator>> group, std::shared_ptr<NodeGroup> nodes)
    : nodes_(std::move(nodes)), group_(std::move(group)), joined_(group_.size()), calls_(group_.size()) {
  group_.front()->when_ended([this] { call_all_but(kNobody); });
  if (nodes_ == nullptr) return;
  end_.emplace(*nodes_);
  nodes_->take(FrameKind::kForward,
               [this](int node, std::vector<std::byte>& payload) { return take_forward(node, payload); });
  nodes_->start();
}

Lockstep::~Lockstep() {
  if (nodes_ != nullptr) nodes_->end();  // ends its threads while the objects that they call still exist
  group_.front()->when_ended(nullptr);   // the communicators' destructors end the group, but must call no rank
}

Status Lockstep::health() const {
  const Status status = group_.front()->status();
  return status.ok() ? status : device_lost(status.message());
}

Status Lockstep::agree(int rank, std::span<const std::int64_t> prefill_sizes,
                       std::span<const std::int64_t> decode_sizes) {
  Hasher sizes;
  for (const std::span<const std::int64_t> ladder : {prefill_sizes, decode_sizes}) {
    sizes.add(ladder.size());
    for (const std::int64_t size : ladder) sizes.add(size);
  }
  const Hash128 own = sizes.finish();
  const std::vector<Hash128> all = TRY(introduce(communicator(rank), own));
  if (std::ranges::all_of(all, [&](const Hash128& other) { return other == own; })) return ok_status();
  return failed_precondition(
      fmt::format("the ranks have captured, or have memory for, different sizes of graphs; rank {} has {} for prefills "
                  "and {} for decodes",
                  rank, prefill_sizes.size(), decode_sizes.size()));
}

Status Lockstep::meet(int rank, std::chrono::milliseconds limit) {
  Communicator& own = communicator(rank);
  const std::chrono::milliseconds usual = own.limit();
  own.set_limit(limit);
  Status met = introduce(own, rank).status();
  own.set_limit(usual);
  return met;
}

void Lockstep::begin(int rank) {
  const std::int64_t forward = ++joined_[index(rank)];
  if (!raise_begun(forward)) return;  // another rank has begun this forward
  call_all_but(rank);
  tell_nodes(forward);
}

bool Lockstep::raise_begun(std::int64_t forward) {
  std::int64_t begun = begun_.load();
  while (begun < forward)
    if (begun_.compare_exchange_weak(begun, forward)) return true;
  return false;
}

void Lockstep::call_all_but(int rank) {
  const std::lock_guard lock(mutex_);
  for (std::size_t here = 0; here < calls_.size(); ++here)
    if (group_[here]->rank() != rank && calls_[here]) calls_[here]();
}

// Tells the other nodes, except node `except`, that a forward has begun. Ignores errors, because a node that cannot be
// told is lost, and its loss ends the group.
void Lockstep::tell_nodes(std::int64_t forward, int except) {
  if (nodes_ == nullptr) return;
  (void)nodes_->tell_all(FrameKind::kForward, std::array{std::as_bytes(std::span(&forward, 1))}, except);
}

Status Lockstep::take_forward(int node, std::span<const std::byte> payload) {
  std::int64_t forward = 0;
  if (payload.size() != sizeof(forward))
    return data_loss(fmt::format("its forward message has {} bytes; accepted: {}, a forward's number", payload.size(),
                                 sizeof(forward)));
  std::memcpy(&forward, payload.data(), sizeof(forward));
  // A node begins a forward only after the previous one, in which all ranks took part. So the newest forward that it
  // can begin is the one after the newest known here. Forwards that are known already may be announced late.
  if (forward < 1 || forward > begun_.load() + 1)
    return data_loss(fmt::format("it begins forward {}; accepted: forwards 1 to {}, because {} have begun", forward,
                                 begun_.load() + 1, begun_.load()));
  if (!raise_begun(forward)) return ok_status();  // this forward is known already, also to the other nodes
  if (nodes_->leads()) tell_nodes(forward, node);
  call_all_but(kNobody);
  return ok_status();
}

void Lockstep::when_awaited(int rank, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  calls_[index(rank)] = std::move(call);
}

}  // namespace tessera
