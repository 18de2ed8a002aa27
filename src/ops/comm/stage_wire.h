// What goes between stages of a pipeline on different nodes: values, and how many of them were received, so that the
// sender knows how many wait. Nodes are connected to node 0 alone, which passes on what is for another one.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/node_group.h"

namespace tessera {

// What both kinds of frame begin with. Behind it a value's bytes.
struct StageFrame {
  std::uint64_t epoch = 0;   // restarts of the group so far: what was sent before one is left out
  std::uint64_t number = 0;  // kStageValue: values that were sent before; kStageTaken: values that were received
  std::int32_t rank = 0;     // that it is for
  std::int32_t way = 0;      // Pipeline::Way of the value
};

class StageWire {
 public:
  // `ranks` of all nodes, as many on each.
  StageWire(std::shared_ptr<NodeGroup> nodes, int ranks) : nodes_(std::move(nodes)), ranks_(ranks) {}

  bool is_here(int rank) const { return node_of(rank) == nodes_->node(); }
  // kDeviceLost where the node that it goes to is gone.
  Status send(FrameKind kind, const StageFrame& head, std::span<const std::byte> value);
  // The head of a frame for a rank of this node; none: it was passed on. kDataLoss where it cannot be read.
  Result<std::optional<StageFrame>> open(FrameKind kind, std::span<const std::byte> payload);

 private:
  int node_of(int rank) const { return rank / (ranks_ / nodes_->nodes()); }

  const std::shared_ptr<NodeGroup> nodes_;
  const int ranks_;
};

}  // namespace tessera
