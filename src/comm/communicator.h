// A Communicator is one rank of a group whose ranks exchange data and run the same calls at the same time, as in tensor
// parallelism.
//
// Ranks are threads of a process, each with its own device and stream:
//
//   std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
//   // thread r: ForwardContext{.communicator = group[r].get()}
//
// If a rank fails, it calls abort(). The destructor of a communicator also aborts the group. The group is also aborted
// when a rank does not make a call in time. From then on every waiting or later collective of the group returns
// kCancelled, until the group is restarted.
//
// With a NodeGroup, the ranks belong to several processes. Each process creates the same number of ranks. Tensors on
// CPUs are then combined on node 0 (node_exchange.h).
//
// Between GPUs the data goes from device to device (device_state.h). The communicator then exchanges only what the GPUs
// need to connect: addresses between ranks of one process (peer_exchange.h), and NCCL's id between processes
// (nccl_exchange.h). NCCL chooses the order in which it adds, and adds in the tensor's type. All ranks still get the
// same bits.
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
#include "tessera/comm/device_state.h"
#include "tessera/ir/tensor_view.h"

namespace tessera {

class Pipeline;
class NodeGroup;

// One rank of the group. Its methods block until all ranks have made the same call. Only the rank's thread may call
// them, except abort() and status(), which any thread may call.
class Communicator {
 public:
  // Creates a group in this process. A collective waits for the other ranks for at most `limit`.
  static std::vector<std::unique_ptr<Communicator>> create_group(
      int ranks, std::chrono::milliseconds limit = std::chrono::minutes(5));
  // Creates this process's ranks of a group that spans all nodes, in rank order. `ranks` is the number of ranks on all
  // nodes. Precondition: `nodes` has not been started.
  static std::vector<std::unique_ptr<Communicator>> create_node_group(int ranks, std::chrono::milliseconds limit,
                                                                      const std::shared_ptr<NodeGroup>& nodes);
  // Creates the ranks of a pipeline's stages, in the order of RankLayout. The ranks of each stage form a separate
  // group. An error that ends the group of one stage also ends the groups of all stages, and the pipeline. With
  // `nodes`, each process has whole stages, and the call creates only this process's ranks.
  static std::vector<std::unique_ptr<Communicator>> create_stages(const RankLayout& layout,
                                                                  std::chrono::milliseconds limit,
                                                                  const std::shared_ptr<NodeGroup>& nodes = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Return this rank's number in its stage, and the number of ranks in the stage. Collectives run within a stage.
  int rank() const { return rank_; }
  int ranks() const;
  // Returns whether this rank's collectives include ranks of other processes.
  bool spans_processes() const;
  // Return and set the maximum time that this rank's collectives wait for another rank or another node.
  std::chrono::milliseconds limit() const { return limit_; }
  void set_limit(std::chrono::milliseconds limit) { limit_ = limit; }
  // Return this rank's number among the ranks of all stages, and the number of ranks in all stages.
  int world_rank() const;
  int world_size() const;
  Pipeline* pipeline();  // null if there is only one stage

  // Replaces every rank's x with the sum of x over all ranks. Adds in rank order in float32 and rounds once, so every
  // rank gets the same bits. Every rank's x has the same dimensions and dtype.
  Status all_reduce(const TensorView& x);
  // Gathers x [rows, n] of all ranks to y [rows, n·ranks], side by side. Every rank's x has the same dimensions and
  // dtype.
  Status all_gather(const TensorView& x, const TensorView& y);
  // Gathers x [n, …] of all ranks to y [ranks·n, …], one below the other. Every rank's x has the same dimensions and
  // dtype.
  Status all_gather_rows(const TensorView& x, const TensorView& y);
  // Adds x [ranks·n, …] of all ranks as in all_reduce, and divides the sum among the ranks. Rows r·n … r·n + n - 1 of
  // the sum go to y [n, …] of rank r.
  Status reduce_scatter(const TensorView& x, const TensorView& y);

  // Aborts the group. `reason` appears in the other ranks' errors. If abort() is called again, the first reason stays.
  void abort(std::string_view reason);
  // Aborts the group if `status` is an error, so that the other ranks do not wait for this one. Returns `status`.
  Status abort_on_error(Status status);
  // Resets an aborted group to its initial state. Returns kFailedPrecondition if kernels of a device take part in
  // collectives (raise_when_ended), because such kernels cannot restart. Precondition: no rank is in a collective, or
  // enters one before this function returns. With several nodes, only rank 0 calls restart(). This call restarts the
  // group on all nodes.
  Status restart();
  // Returns ok, or the reason why the group was aborted.
  Status status() const;
  // Sets a function that is called once, on any thread, when the group ends. All ranks of a stage in this process share
  // one function. If `call` is null, removes the function, but the function may still be running when when_ended()
  // returns.
  void when_ended(std::function<void()> call);
  // Sets `flag` to 1 when the group ends, or at once if it has already ended. Waiting kernels poll this flag. The flag
  // must outlive the communicator, unless take_back() removes the flag first.
  void raise_when_ended(std::atomic<std::uint32_t>* flag);
  void take_back(std::atomic<std::uint32_t>* flag);
  DeviceState& device_state() { return device_state_; }
  // Returns the number of bytes of host memory in which values from other ranks wait for this rank. In a pipeline,
  // these are values from neighbouring stages. Without stages, they are the tensors of collectives between nodes, and
  // only the first rank of each process counts them.
  std::int64_t host_bytes() const;

 private:
  struct Group;
  struct Stages;
  // The part of a collective's result that a rank gets: the whole result, or only the rank's rows.
  enum class Share { kWhole, kRows };
  Communicator(std::shared_ptr<Group> group, int rank, std::chrono::milliseconds limit);
  // Waits until all ranks are in the same call, runs body(), and waits until all ranks have run their body(). body()
  // writes `result`. With several nodes only the ranks of node 0 run body(). The other ranks receive their share of the
  // result.
  template <class Body>
  Status together(std::string_view call, const TensorView& x, const TensorView& result, Share share, const Body& body);
  Status enter(std::string_view call, const TensorView& x);
  Status exchange(std::string_view call, const TensorView& result, Share share);
  TensorView rows_of_all(const TensorView& own) const;
  Status follow(const TensorView& result, Share share);
  bool is_first_here() const;
  NodeGroup* nodes() const;  // null if all ranks are in this process
  void end_group(const Status& why);
  Status check_agreement() const;
  void leave();

  std::shared_ptr<Group> group_;
  DeviceState device_state_;
  std::shared_ptr<Stages> stages_;  // null if there is only one stage
  int rank_;
  int place_ = 0;  // the rank's number among all stages; unused without stages_
  std::chrono::milliseconds limit_;
};

}  // namespace tessera
