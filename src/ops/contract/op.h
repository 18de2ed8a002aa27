// The second half of an operator: its kernels. The first half, the declaration, is ir/op_decl.h.
//
// A kernel is bound once for a bucket: every address, grid and matmul algorithm is decided then.
// The bound operator's enqueue() is all that runs afterwards, eagerly or while a stream records:
// it sees device addresses, bucket constants and attributes, and nothing of the batch on the host.
//
// What varies from step to step is written to static buffers before the forward: token inputs by the runner's input
// staging, everything else by the operator's plan (ops/contract/op_plan.h).
//
// To add an operator: docs/adding-an-op.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/kernel_variant.h"

namespace tessera {

inline constexpr int kMaxRank = 5;

// A value in device memory, row-major and contiguous. Trivially copyable: kernels capture it.
struct TensorView {
  DeviceAddress data = {};
  ir::DType dtype = ir::DType::kFloat32;
  std::int32_t rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  bool is_weight = false;  // no kernel writes it, so that a kernel may read it before those ahead of it have ended

  std::int64_t dim(int i) const { return dims[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim(i);
    return n;
  }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(ir::dtype_size(dtype)); }
  // Rows of a matrix view: all but the last dimension.
  std::int64_t rows() const { return rank == 0 || dim(rank - 1) == 0 ? 0 : elements() / dim(rank - 1); }
  std::int64_t cols() const { return rank == 0 ? 1 : dim(rank - 1); }
  // On devices with pointers.
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data.raw());
  }
};

// A kernel with everything decided. Immutable; lives as long as graphs that recorded it.
class BoundOp {
 public:
  virtual ~BoundOp() = default;
  // Asynchronous on `stream`. Allocates nothing, synchronises nothing, and reads no host data but what the last plan()
  // of a planned operator left: launches for which that has no work may be left out. While the stream records all are
  // enqueued, because the graph is replayed with other plans.
  virtual Status enqueue(Stream& stream) const = 0;
  KernelVariant variant() const { return {typeid(*this), choice()}; }

 private:
  // What bind() chose among kernels or algorithms that the dynamic type does not tell apart. Follows from the node and
  // the sizes alone for an operator in which ranks meet, so that all ranks warm it up together.
  virtual std::uint64_t choice() const { return 0; }
};

// What bind() gets. All spans and references are valid during the call only; addresses are valid
// as long as the BoundOp.
struct BindArgs {
  const ir::Node& node;                  // attributes
  std::span<const TensorView> operands;  // in declaration order; a left-out optional operand is absent
  std::span<const TensorView> results;
  DeviceAddress workspace = {};  // scratch of workspace_bytes(), shared by all kernels of the stream
  Device& device;
  const ForwardContext& context;  // outlives the BoundOp
};

struct OpPlanner;

// A device's implementation of an operator.
struct KernelDef {
  std::string_view op;
  // Name of the implementation, shown by explain and errors: "onednn", "cpu".
  std::string_view name;
  Result<std::unique_ptr<BoundOp>> (*bind)(const BindArgs& args) = nullptr;
  // Scratch the bound kernel needs, from the same arguments (addresses null, no plans); null: none.
  Result<std::size_t> (*workspace_bytes)(const BindArgs& args) = nullptr;
  // Null: the kernel reads nothing but its operands and the context's numbers. Outlives the definition.
  const OpPlanner* planner = nullptr;
};

// One kernel for up to three neighbouring operators, or for all decoder layers, where it is faster than theirs, whose
// place it takes: its result is the same up to the order of sums. Of up to three, the first result of each but the last
// (or the operand that it writes) is read by the next one alone, as its first operand, and need not be written.
struct JoinedKernelDef {
  std::array<std::string_view, 3> ops;  // in order; empty after the last. All layers: kDecoderLayers alone
  std::string_view name;
  std::int64_t most_rows = 0;  // of the first operator's first operand
  // Null where it does not serve these sizes, types or attributes, or where deterministic kernels are asked for.
  // `calls` has an entry for each operator. An operand of any of them does not share memory with a result of any.
  Result<std::unique_ptr<BoundOp>> (*bind)(std::span<const BindArgs> calls) = nullptr;

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
  // Error naming operator and device where there is none.
  Result<const KernelDef*> get(std::string_view op) const;
  const KernelDef* find(std::string_view op) const;  // null where there is none
  std::span<const JoinedKernelDef> joined() const { return joined_; }
  // The same with `kernel` for its operator, and without the joined kernels that stand for that operator.
  KernelTable with(const KernelDef& kernel) const;

 private:
  std::vector<KernelDef> kernels_;       // sorted by op
  std::vector<JoinedKernelDef> joined_;  // those of more operators first; kDecoderLayers counts as one
};

}  // namespace tessera
