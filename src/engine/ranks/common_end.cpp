#include "tessera/engine/ranks/common_end.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

CommonEnd::CommonEnd(NodeGroup& nodes) : nodes_(nodes) {
  nodes.take(FrameKind::kStop, [this](int from, std::vector<std::byte>& payload) -> Status {
    std::int32_t node = 0;
    if (payload.size() != sizeof(node))
      return data_loss(
          fmt::format("its stop message has {} bytes; accepted: {}, a node's number", payload.size(), sizeof(node)));
    std::memcpy(&node, payload.data(), sizeof(node));
    take_stop(node);
    if (nodes_.leads())
      (void)nodes_.send_to_all(FrameKind::kStop, std::array{std::span<const std::byte>(payload)}, /*except=*/from);
    return ok_status();
  });
  nodes.take(FrameKind::kDone, [this](int, std::vector<std::byte>&) {
    const std::lock_guard lock(mutex_);
    ++done_;
    moved_.notify_all();
    return ok_status();
  });
  nodes.when_ended([this](int, const Status&) { give_up(); });
}

void CommonEnd::take_stop(int node) {
  const std::lock_guard lock(mutex_);
  if (told_by_ < 0) told_by_ = node;
  if (stop_) std::exchange(stop_, nullptr)(told_by_);
}

void CommonEnd::when_told(std::function<void(int node)> stop) {
  const std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
  if (stop_ && told_by_ >= 0) std::exchange(stop_, nullptr)(told_by_);
}

// Tells all other nodes that this node ends. Errors are ignored, because a node that cannot be told is lost, and each
// side notices the loss by itself.
void CommonEnd::tell() {
  const std::int32_t own = nodes_.node();
  (void)nodes_.tell_all(FrameKind::kStop, std::array{std::as_bytes(std::span(&own, 1))});
}

bool CommonEnd::leave_together(std::chrono::milliseconds limit) {
  if (!nodes_.leads()) (void)nodes_.send(0, FrameKind::kDone, {});
  bool together = false;
  {
    std::unique_lock lock(mutex_);
    const int awaited = nodes_.leads() ? nodes_.nodes() - 1 : 1;
    moved_.wait_for(lock, limit, [&] { return given_up_ || done_ >= awaited; });
    together = done_ >= awaited;
  }
  if (nodes_.leads() && together) (void)nodes_.send_to_all(FrameKind::kDone, {});
  nodes_.leave();
  return together;
}

void CommonEnd::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  moved_.notify_all();
}

}  // namespace tessera
