// Tensor parallelism: a group of ranks that run in lockstep, and the operators in which they meet.
//
//   all_reduce(mut x X[*, N])   x = Σ over ranks of x, added in rank order in float32 and rounded once: the same
//                               bits on every rank. One rank (no communicator): nothing happens.
//   all_gather(x X[R, N]) {ranks} → X[R, N·ranks]   the ranks' columns side by side, in rank order
//
// Ranks are threads of this process, each with its own device and stream:
//
//   std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
//   // thread r: ForwardContext{.communicator = group[r].get()}
//
// A rank that fails calls abort(), and a communicator's destruction is one: the others, waiting or yet to
// come, get kCancelled from the collective they are in, and the group is over.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

// One rank's place in the group. Its methods block until all ranks have made the same call, and belong
// to the rank's thread; abort() and status() may be called from any.
class Communicator {
 public:
  static std::vector<std::unique_ptr<Communicator>> create_group(int ranks);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const;

  // In place. Every rank's x has the same element count and dtype.
  Status all_reduce(const TensorView& x);
  // x [rows, n] → y [rows, n·ranks]. Every rank's x has the same dimensions and dtype.
  Status all_gather(const TensorView& x, const TensorView& y);

  // Ends the group for good. `reason` appears in the other ranks' errors; the first one stays.
  void abort(std::string_view reason);
  // Ok, or why the group ended.
  Status status() const;

 private:
  struct Group;
  Communicator(std::shared_ptr<Group> group, int rank);
  // Meets the other ranks, runs body() while all of them stand still in the same call, and parts from them.
  template <class Body>
  Status together(std::string_view call, const TensorView& x, const Body& body);
  Status enter(std::string_view call, const TensorView& x);
  Status check_agreement() const;
  void leave();

  std::shared_ptr<Group> group_;
  int rank_;
};

extern const ir::OpDecl kAllReduce;
extern const KernelDef kAllReduceCpu;
extern const KernelDef kAllReduceCuda;
extern const ir::OpDecl kAllGather;
extern const KernelDef kAllGatherCpu;
extern const KernelDef kAllGatherCuda;

}  // namespace tessera
