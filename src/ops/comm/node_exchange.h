// Collectives between the nodes of a group, for ranks on CPUs: the tensors of all ranks go to node 0, which adds them
// up in rank order, and its result comes back. One rank of each node, the first, does this for its node.
//
// What was sent before the group was aborted is left out after it was restarted: frames have the number of the restart
// (their epoch) and of the collective.
//
// Threads: the collectives belong to the node's first rank; the take… functions to the connections; begin() on node 0
// to its rank 0, elsewhere to the connection; end() may be called from any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/node_group.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

class NodeExchange {
 public:
  // `ranks` of all nodes, as many on each.
  NodeExchange(std::shared_ptr<NodeGroup> nodes, int ranks);

  NodeGroup& nodes() { return *nodes_; }
  bool leads() const { return nodes_->leads(); }
  int ranks_here() const { return ranks_here_; }
  int first_rank() const { return nodes_->node() * ranks_here_; }

  // Node 0: waits for the other nodes' tensors, for `limit` at most, and puts views of them, with their calls, behind
  // those of its own ranks. `tensors` and `calls` have an entry for each rank. The views are valid until spread(); a
  // tensor of another form than the first rank's has no memory. kCancelled where a node does not come, or the exchange
  // has ended.
  Status collect(std::span<TensorView> tensors, std::span<std::string_view> calls, std::chrono::milliseconds limit);
  // Node 0: the result of what was collected, to all others, whose next tensors are taken from here on.
  Status spread(const TensorView& result) { return spread(result, /*in_parts=*/false); }
  // The same where every rank gets rows of its own: `rows` [ranks, …], of which a node gets its ranks'.
  Status spread_rows(const TensorView& rows) { return spread(rows, /*in_parts=*/true); }
  // Any other node: sends its ranks' tensors, and waits for the result, of result.bytes() bytes, as collect() does.
  Status trade(std::string_view call, std::span<const TensorView> tensors, const TensorView& result,
               std::chrono::milliseconds limit);

  // Ends the waits above with `why`, until begin().
  void end(const Status& why);
  // Precondition: no rank is in a collective.
  void begin(std::uint64_t epoch);
  std::uint64_t epoch() const;

  // Frames. An error: they cannot be read.
  Status take_tensors(int node, std::vector<std::byte>& payload);
  Status take_result(std::vector<std::byte>& payload);

 private:
  struct Inbox {
    bool full = false;
    std::vector<std::byte> bytes;
  };
  Status spread(const TensorView& result, bool in_parts);
  Status take(Inbox& inbox, std::vector<std::byte>& payload);
  // Until the inboxes of the nodes `first` … are full.
  Status wait(std::string_view call, int first, std::chrono::milliseconds limit);
  // The bytes of all inboxes have been used; the next ones may come.
  void empty();

  const std::shared_ptr<NodeGroup> nodes_;
  const int ranks_here_;
  std::uint64_t number_ = 0;  // of the collective
  std::vector<std::span<const std::byte>> parts_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  // Guarded by the mutex.
  std::uint64_t epoch_ = 0;
  Status ended_;
  std::vector<Inbox> inboxes_;  // [nodes], of what each sent; the bytes of a full one belong to who waits
};

}  // namespace tessera
