#include "tessera/comm/stage_wire.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace tessera {

Status StageWire::send(FrameKind kind, const StageFrame& head, std::span<const std::byte> value) {
  const int to = nodes_->leads() ? node_of(head.rank) : 0;
  return nodes_->send(to, kind, std::array{std::as_bytes(std::span(&head, 1)), value});
}

Result<std::optional<StageFrame>> StageWire::open(FrameKind kind, std::span<const std::byte> payload) {
  StageFrame head;
  if (payload.size() < sizeof(head))
    return data_loss(
        fmt::format("it sent a value between stages in {} bytes; its head alone has {}", payload.size(), sizeof(head)));
  std::memcpy(&head, payload.data(), sizeof(head));
  if (head.rank < 0 || head.rank >= ranks_)
    return data_loss(fmt::format("it sent a value to rank {}; there are {}", head.rank, ranks_));
  if (is_here(head.rank)) return std::optional(head);
  if (!nodes_->leads()) return data_loss(fmt::format("it sent a value to rank {}, which is not here", head.rank));
  // An error is ignored, because the connection to a lost node itself reports that the node is lost.
  (void)nodes_->send(node_of(head.rank), kind, std::array{payload});
  return std::optional<StageFrame>();
}

}  // namespace tessera
