// Sends and receives frames between pipeline stages on different nodes. A frame contains either a value, or the number
// of values that were received until now. From this number the node that sent the values computes how many of them
// still wait. Nodes are connected only to node 0, which passes on frames for other nodes.
//
// Threads: any thread may call any function.
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

// The header of every frame between stages. In a kStageValue frame, the bytes of the value follow the header.
struct StageFrame {
  std::uint64_t epoch = 0;   // number of restarts of the group; frames with another epoch are dropped
  std::uint64_t number = 0;  // kStageValue: number of values sent before; kStageTaken: number of values received
  std::int32_t rank = 0;     // the rank that gets the frame
  std::int32_t way = 0;      // Pipeline::Way of the value
};

class StageWire {
 public:
  // `ranks` is the number of ranks on all nodes together. Every node has the same number of ranks.
  StageWire(std::shared_ptr<NodeGroup> nodes, int ranks) : nodes_(std::move(nodes)), ranks_(ranks) {}

  bool is_here(int rank) const { return node_of(rank) == nodes_->node(); }
  // Sends a frame. Returns kDeviceLost if the destination node is lost.
  Status send(FrameKind kind, const StageFrame& head, std::span<const std::byte> value);
  // Returns the header of a received frame if the frame is for a rank of this node. If the frame is for another node,
  // node 0 passes it on and returns nothing. Returns kDataLoss if the frame cannot be read, or if a node other than 0
  // gets a frame for another node.
  Result<std::optional<StageFrame>> open(FrameKind kind, std::span<const std::byte> payload);

 private:
  int node_of(int rank) const { return rank / (ranks_ / nodes_->nodes()); }

  const std::shared_ptr<NodeGroup> nodes_;
  const int ranks_;
};

}  // namespace tessera
