// Carries out collectives between the nodes of a group, for ranks on CPUs. The tensors of all ranks go to node 0, which
// computes the result and sends it back. Sums are in rank order. The first rank of each node calls this class for its
// node.
//
// Each frame contains the number of the last restart (the epoch) and the number of the collective. If a frame was sent
// before an abort, it can therefore be dropped after the restart.
//
// Threads: the node's first rank calls the collectives, and the connections' threads call the take… functions. On node
// 0, rank 0 calls begin(). On other nodes, the thread of the connection calls it. Any thread may call end().
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
#include "tessera/ir/tensor_view.h"
#include "tessera/net/node_group.h"

namespace tessera {

class NodeExchange {
 public:
  // `ranks` is the number of ranks on all nodes together. Every node has the same number of ranks.
  NodeExchange(std::shared_ptr<NodeGroup> nodes, int ranks);

  NodeGroup& nodes() { return *nodes_; }
  bool leads() const { return nodes_->leads(); }
  int ranks_here() const { return ranks_here_; }
  int first_rank() const { return nodes_->node() * ranks_here_; }

  // On node 0: waits for the tensors of the other nodes, at most for `limit`. `tensors` and `calls` have an entry for
  // each rank, and node 0's own ranks come first. Writes views of the received tensors, and the names of their calls,
  // to the entries of the other ranks. The views are valid until spread(). If a tensor differs from the first rank's
  // tensor in shape or type, the view of this tensor has no memory. Returns kCancelled if a node does not answer or the
  // exchange has ended.
  Status collect(std::span<TensorView> tensors, std::span<std::string_view> calls, std::chrono::milliseconds limit);
  // On node 0: sends the result to all other nodes, and from then on accepts their next tensors.
  Status spread(const TensorView& result) { return spread(result, /*in_parts=*/false); }
  // On node 0: sends to every other node only the rows for that node's ranks, and from then on accepts the next
  // tensors. `rows` is [ranks, …].
  Status spread_rows(const TensorView& rows) { return spread(rows, /*in_parts=*/true); }
  // On any other node: sends the tensors of the node's ranks, and waits for the result, which has result.bytes() bytes.
  // `limit` and the errors have the same meaning as in collect().
  Status trade(std::string_view call, std::span<const TensorView> tensors, const TensorView& result,
               std::chrono::milliseconds limit);

  // Makes the waits of all functions above fail with `why`, until begin().
  void end(const Status& why);
  // Starts again after end(). `epoch` is the number of the restart. Precondition: no rank is in a collective.
  void begin(std::uint64_t epoch);
  std::uint64_t epoch() const;

  // Returns the size in bytes of the memory for received frames. It is the sum, over all nodes, of the largest frame
  // that a node has sent.
  std::int64_t bytes() const;
  // Return the size in bytes of a frame. For tensors_bytes() the frame contains `tensors` bytes of tensors, and for
  // result_bytes() a result of `result` bytes.
  static std::int64_t tensors_bytes(std::int64_t tensors);
  static std::int64_t result_bytes(std::int64_t result);

  // take_tensors() stores a received frame of tensors from `node`. take_result() stores a received frame with a result
  // from node 0. Both return an error if the frame cannot be read.
  Status take_tensors(int node, std::vector<std::byte>& payload);
  Status take_result(std::vector<std::byte>& payload);

 private:
  struct Inbox {
    bool full = false;
    std::vector<std::byte> bytes;
    std::size_t most = 0;  // size of the largest frame until now, in bytes
  };
  Status spread(const TensorView& result, bool in_parts);
  Status take(Inbox& inbox, std::vector<std::byte>& payload);
  // If `first` is 0, waits until a frame of node 0 has arrived. Otherwise waits until a frame of each node from `first`
  // up has arrived.
  Status wait(std::string_view call, int first, std::chrono::milliseconds limit);
  // Empties all inboxes, so that the next tensors may arrive.
  void empty();

  const std::shared_ptr<NodeGroup> nodes_;
  const int ranks_here_;
  std::uint64_t number_ = 0;  // number of the collective
  std::vector<std::span<const std::byte>> parts_;
  mutable std::mutex mutex_;
  std::condition_variable came_;
  // The members below are guarded by the mutex.
  std::uint64_t epoch_ = 0;
  Status ended_;
  std::vector<Inbox> inboxes_;  // one for each node; the bytes of a full inbox belong to the waiting thread
};

}  // namespace tessera
