// Defines the kernels of operators (KernelDef) and their bound form (BoundOp). Operators are declared in ir/op_decl.h.
//
// A kernel is bound once for a bucket (ir::Bucket: a number for every symbolic size). Binding fixes every address, grid
// and matmul algorithm. Afterwards only the bound operator's enqueue() runs, eagerly or while a stream records.
// enqueue() sees device addresses, bucket constants and attributes, but not the ForwardBatch.
//
// Values that change from step to step are written to static buffers before the forward: the runner's input staging
// writes the token inputs, and the operator's plan (ops/contract/op_plan.h) writes everything else.
//
// docs/adding-an-op.md explains how to add an operator.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ir/tensor_view.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/kernel_variant.h"
#include "tessera/ops/contract/region.h"

namespace tessera {

// A kernel that only has to be enqueued, because bind() made all decisions. Immutable. It lives as long as the graphs
// that recorded it.
class BoundOp {
 public:
  virtual ~BoundOp() = default;
  // Enqueues the kernel on `stream` and does not wait for it. This function allocates nothing and synchronises nothing.
  // The only host data that it may read is what the newest plan() of the operator's OpPlan wrote. It may skip launches
  // for which that plan() found no work. While the stream records, it enqueues all launches, because each replay of the
  // graph uses the results of a later plan().
  virtual Status enqueue(Stream& stream) const = 0;
  KernelVariant variant() const { return {typeid(*this), choice()}; }

 private:
  // Returns a number that identifies the kernel or algorithm among those that BoundOps of the same C++ type may run. If
  // the operator exchanges data between ranks, the number must depend only on the node and the sizes. This makes all
  // ranks warm up the same kernels together.
  virtual std::uint64_t choice() const { return 0; }
};

// Arguments of bind(). The spans and `node` are valid only during the call. The addresses and `context` stay valid as
// long as the BoundOp lives.
struct BindArgs {
  const ir::Node& node;                  // the graph's node, with its attributes
  std::span<const TensorView> operands;  // in declaration order; an omitted optional operand is absent
  std::span<const TensorView> results;
  DeviceAddress workspace = {};  // workspace_bytes() bytes of scratch, shared by all kernels of the stream
  Device& device;
  const ForwardContext& context;  // outlives the BoundOp
};

struct OpPlanner;

// A device's implementation of an operator. Its functions may capture an object, such as a plugin's table. Copies of
// the definition share this object.
struct KernelDef {
  std::string_view op;
  // The implementation's name in errors and in the output of `explain`: "onednn", "cpu".
  std::string_view name;
  std::function<Result<std::unique_ptr<BoundOp>>(const BindArgs& args)> bind{};
  // Returns the bytes of scratch that the bound kernel needs. The arguments are those of bind(), but with null
  // addresses and without plans. The result must also be enough for any call with fewer rows: a runner calls this
  // function only for its greatest number of rows, although fewer rows may run another kernel. The function is null if
  // the kernel needs no scratch.
  std::function<Result<std::size_t>(const BindArgs& args)> workspace_bytes{};
  // Makes the kernel's plans. The planner is null if the kernel reads only its operands and the numbers in its
  // ForwardContext, and therefore needs no plan. The planner outlives the definition.
  const OpPlanner* planner = nullptr;
};

// A kernel that replaces up to three neighbouring operators, or a region of the program, because it is faster. Its
// results equal those of the replaced operators, up to the order of sums. Each replaced operator passes one value to
// the first operand of the next operator. This value is the first result of the replaced operator, or the operand that
// the operator updates in place. If the next operator updates the value in place, other operators may read the updated
// value, so the joined kernel must write it. Otherwise nothing else reads the value, and the joined kernel need not
// write it. The kernel of a region writes only the results of the region's last call, because nothing outside the
// region reads other results.
struct JoinedKernelDef {
  std::array<std::string_view, 3> ops{};  // the operators, in order; unused entries are empty
  const RegionPattern* region = nullptr;  // the region to replace; null: `ops` are replaced
  std::string_view name;
  std::int64_t most_rows = 0;  // maximum number of rows of the first operator's first operand
  // true: the kernel replaces operators with the same first operand, and stores the results of all of them. false: each
  // operator but the last passes its result only to the next one, and the kernel need not store these results.
  bool side_by_side = false;
  // Returns null if the kernel does not support these sizes, types or attributes. It must also return null in a
  // deterministic forward if the kernel's results could have other bits than those of the replaced operators. `calls`
  // has one entry for each replaced operator. No operand of these calls shares memory with a result.
  Result<std::unique_ptr<BoundOp>> (*bind)(std::span<const BindArgs> calls) = nullptr;

  // Returns whether the kernel replaces calls of this operator.
  bool replaces(std::string_view op) const {
    return region != nullptr ? region->has(op) : std::ranges::find(ops, op) != ops.end();
  }
  // Returns the number of neighbouring operators that are replaced, or 0 if the kernel replaces a region.
  std::size_t num_ops() const {
    std::size_t n = 0;
    while (n < ops.size() && !ops[n].empty()) ++n;
    return n;
  }
};

// The kernels of one device.
class KernelTable {
 public:
  explicit KernelTable(std::vector<KernelDef> kernels, std::vector<JoinedKernelDef> joined = {});
  // Returns the operator's kernel. If there is none, returns an error that names the operator and the device.
  Result<const KernelDef*> get(std::string_view op) const;
  const KernelDef* find(std::string_view op) const;  // null if there is none
  std::span<const JoinedKernelDef> joined() const { return joined_; }
  // Returns a copy that uses `kernel` for its operator and has no joined kernels that replace this operator.
  KernelTable with(const KernelDef& kernel) const;

 private:
  std::vector<KernelDef> kernels_;       // sorted by op
  std::vector<JoinedKernelDef> joined_;  // kernels of many operators first, kernels of regions last
};

}  // namespace tessera
