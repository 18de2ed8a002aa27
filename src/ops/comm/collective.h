// Tensor parallelism: a group of ranks that run in lockstep, and the operators in which they meet.
//
//   all_reduce(mut x X[*, N])   x = Σ over ranks of x, added in rank order in float32 and rounded once: the same
//                               bits on every rank. One rank (no communicator): nothing happens.
//   all_gather(x X[R, N]) {ranks} → X[R, N·ranks]   the ranks' columns side by side, in rank order
//
// Ranks are threads of a process, each with its own device and stream:
//
//   std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
//   // thread r: ForwardContext{.communicator = group[r].get()}
//
// A rank that fails calls abort(), and destroying a communicator aborts too: the collectives that other ranks wait in,
// or call later, return kCancelled, until the group is restarted. A rank that does not come in time aborts it likewise.
//
// With a NodeGroup the group has ranks in several processes, as many in each; a process makes its own. The nodes'
// tensors meet on node 0 (node_exchange.h).
//
// Between GPUs the data goes from device to device, and the communicator brings together what they need to know of one
// another: of one process their addresses (peer_exchange.h), of several NCCL's id (nccl_exchange.h). NCCL adds up in an
// order of its own, in the tensor's type; all ranks hold the same bits there too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/comm/pipeline.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

class NodeGroup;

// One rank of the group. Its methods block until all ranks have made the same call, and belong to the rank's thread;
// abort() and status() may be called from any.
class Communicator {
 public:
  // A collective waits for the other ranks for `limit` at most.
  static std::vector<std::unique_ptr<Communicator>> create_group(
      int ranks, std::chrono::milliseconds limit = std::chrono::minutes(5));
  // The ranks of this process, of `ranks` on all nodes, in order. `nodes` has not been started.
  static std::vector<std::unique_ptr<Communicator>> create_node_group(int ranks, std::chrono::milliseconds limit,
                                                                      const std::shared_ptr<NodeGroup>& nodes);
  // Ranks in several stages of a pipeline, by RankLayout's order. The ranks of a stage are a group of their own; what
  // ends one stage's group ends those of all, and the pipeline. With `nodes`, as above, the ranks of this process: each
  // has whole stages.
  static std::vector<std::unique_ptr<Communicator>> create_stages(const RankLayout& layout,
                                                                  std::chrono::milliseconds limit,
                                                                  const std::shared_ptr<NodeGroup>& nodes = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Of the stage, as all collectives count.
  int rank() const { return rank_; }
  int ranks() const;
  // Whether ranks that it meets in collectives are in other processes.
  bool spans_processes() const;
  // That this rank's collectives wait for other ranks, and its part in those over nodes for other nodes.
  std::chrono::milliseconds limit() const { return limit_; }
  void set_limit(std::chrono::milliseconds limit) { limit_ = limit; }
  // Of all stages.
  int place() const;
  int places() const;
  Pipeline* pipeline();  // null: there is one stage

  // In place. Every rank's x has the same element count and dtype.
  Status all_reduce(const TensorView& x);
  // x [rows, n] → y [rows, n·ranks]. Every rank's x has the same dimensions and dtype.
  Status all_gather(const TensorView& x, const TensorView& y);
  // x [n, …] → y [ranks·n, …], the ranks' rows one below the other. As all_gather.
  Status all_gather_rows(const TensorView& x, const TensorView& y);
  // x [ranks·n, …] → y [n, …]: of this rank's rows, from row rank·n on, the sum over ranks as all_reduce makes it.
  Status reduce_scatter(const TensorView& x, const TensorView& y);

  // `reason` appears in the other ranks' errors; that of the first call is kept.
  void abort(std::string_view reason);
  // The group is as it was when it was made. kFailedPrecondition where a device's kernels take part
  // (raise_when_ended): they cannot begin anew. Precondition: no rank is in a collective, or calls one before this
  // returned. Of several nodes node 0 calls it, for all.
  Status restart();
  // Ok, or why the group was aborted.
  Status status() const;
  // `call` is made once, on whichever thread, when the group ends; one for all ranks of this process. Null: none, but
  // it may be under way.
  void when_ended(std::function<void()> call);
  // `flag` becomes 1 when the group ends, at once where it has: for kernels that wait on a device. It outlives the
  // communicator or is taken back before.
  void raise_when_ended(std::atomic<std::uint32_t>* flag);
  void take_back(std::atomic<std::uint32_t>* flag);
  // What a device's kernels share for this rank. The rank's bound operators own it, so that it ends before the device.
  std::weak_ptr<void>& device_state() { return device_state_; }
  // The same for the link to the next stage, or from the previous one.
  std::weak_ptr<void>& link_state(bool to_next) { return to_next ? to_next_ : from_previous_; }

 private:
  struct Group;
  struct Stages;
  enum class Share { kWhole, kRows };  // of a collective's result: all ranks have the same, or each rows of its own
  Communicator(std::shared_ptr<Group> group, int rank, std::chrono::milliseconds limit);
  // Waits until all ranks are in the same call, runs body(), and waits until all ranks have run theirs.
  // `result` is what body() writes. Of several nodes only node 0's ranks run it; the others get their share of what it
  // gave.
  template <class Body>
  Status together(std::string_view call, const TensorView& x, const TensorView& result, Share share, const Body& body);
  Status enter(std::string_view call, const TensorView& x);
  Status exchange(std::string_view call, const TensorView& result, Share share);
  TensorView rows_of_all(const TensorView& own) const;
  Status follow(const TensorView& result, Share share);
  bool is_first_here() const;
  NodeGroup* nodes() const;  // null: one process
  void end_group(const Status& why);
  Status check_agreement() const;
  void leave();

  std::shared_ptr<Group> group_;
  std::weak_ptr<void> device_state_;
  std::weak_ptr<void> to_next_;
  std::weak_ptr<void> from_previous_;
  std::shared_ptr<Stages> stages_;  // null: one
  int rank_;
  int place_ = 0;  // with stages_
  std::chrono::milliseconds limit_;
};

extern const ir::OpDecl kAllReduce;
extern const KernelDef kAllReduceCpu;
extern const KernelDef kAllReduceCuda;
extern const ir::OpDecl kAllGather;
extern const KernelDef kAllGatherCpu;
extern const KernelDef kAllGatherCuda;

}  // namespace tessera
