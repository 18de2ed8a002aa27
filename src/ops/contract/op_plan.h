// What an operator decides on the host before every forward: the batch's lengths and page tables in device memory,
// say, and how its work is spread over the multiprocessors. A kernel that needs such a plan names an OpPlanner; the
// runner makes one OpPlan for each planned operator and cache group, calls all of them before each forward and knows
// none by name. The kernels find theirs in the ForwardContext when they are bound, and read what it wrote, at
// addresses that stay, when they run: a recorded graph serves any batch.
//
//   OpPlanner::make(device, args, step) → OpPlan    once per runner, operator and cache group
//   OpPlan::plan(batch, kind, padded, stream)       before every forward
//   find_plan(args) in KernelDef::bind              once per bucket
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/ops/contract/step_buffer.h"

namespace tessera {

struct BindArgs;
struct KernelDef;
class KernelTable;

// One operator's plan for one cache group. Owned by the runner; used by one thread; outlives the kernels bound with it.
class OpPlan {
 public:
  virtual ~OpPlan() = default;
  // Decides for `batch` and writes what the kernels read to the step buffer, whose next upload carries it, or uploads
  // it in the order of `stream`. `padded_requests`: kDecode: rows of
  // the graph that will run, at least the batch's requests; kExtend: unused. kResourceExhausted where the batch exceeds
  // the limits that the plan was made for, kInternal where it contradicts itself. Allocates nothing.
  virtual Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) = 0;
  // Of device memory, held for the plan's life, its share of the step buffer included.
  virtual std::int64_t bytes() const = 0;
  // The kernels that run for such batches, as results and logs name them; layers may differ.
  virtual std::vector<std::string_view> kernels(BatchKind kind) const = 0;
};

// A node of the operator, with the types of its operands.
struct PlannedNode {
  const ir::Node* node = nullptr;
  std::vector<ir::Type> operands;
};

// What a plan is made for. Spans are valid during the call.
struct PlanArgs {
  std::span<const PlannedNode> nodes;  // all of the group
  std::string_view kernel;             // KernelDef::name of the kernel that is planned for
  std::int64_t group = 0;
  std::int64_t num_pages = 0;  // of the group's cache: page ids are below it
  PlanLimits limits;
};

// How a device's kernel is planned. Both functions are given and agree on the bytes.
struct OpPlanner {
  // `step` outlives the plan. What the plan writes every step lies there: it reserves its share here.
  Result<std::unique_ptr<OpPlan>> (*make)(Device& device, const PlanArgs& args, StepBuffer& step) = nullptr;
  // What make() will take of the device's memory, its share of the step buffer included.
  Result<std::int64_t> (*bytes_needed)(Device& device, const PlanArgs& args) = nullptr;
};

// For kernels' bind(): the plan of the node's operator and cache group (its attribute "group", 0 where it has none).
// kFailedPrecondition where the context has none.
Result<const OpPlan*> find_plan(const BindArgs& args);

// The planned operators of graphs: the nodes of each operator and cache group whose kernel has a planner.
struct PlannedOp {
  std::string op;
  std::int64_t group = 0;
  const KernelDef* kernel = nullptr;  // with a planner
  std::vector<PlannedNode> nodes;
};
// In order of first appearance. Borrows the graphs' nodes and the table's kernels.
Result<std::vector<PlannedOp>> find_planned_ops(std::span<const ir::Graph* const> graphs, const KernelTable& kernels);

}  // namespace tessera
