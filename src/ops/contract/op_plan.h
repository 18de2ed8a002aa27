// An operator's plan prepares a forward. The plan's code runs on the CPU. For example, it writes the batch's lengths
// and page tables to device memory, and decides how the work is spread over the multiprocessors. A kernel that needs a
// plan names an OpPlanner. The runner makes one OpPlan for each planned operator and each cache group (layers that
// share a page table), and calls plan() of each OpPlan before every forward. The runner does not know these operators
// by name. A kernel finds its plan in the ForwardContext when it is bound. When the kernel runs, it reads the plan's
// data at fixed addresses, so that a recorded graph works for any batch.
//
//   OpPlanner::make(device, args, step) → OpPlan    once per runner, operator and cache group
//   OpPlan::plan(batch, kind, padded, stream)       before every forward
//   find_plan(args) in KernelDef::bind              once per bucket
#pragma once

#include <cstdint>
#include <functional>
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

// One operator's plan for one cache group. The runner owns the plan, and only one thread uses it. The plan outlives the
// kernels that were bound with it.
class OpPlan {
 public:
  virtual ~OpPlan() = default;
  // Plans `batch`. The function either writes the kernels' data to the step buffer, which is uploaded afterwards, or
  // uploads the data itself on `stream`. For kDecode, `padded_requests` is the number of rows of the graph that will
  // run. It is at least the batch's number of requests. For kExtend it is unused. Returns kResourceExhausted if the
  // batch exceeds the limits that the plan was made for, and kInternal if the batch contradicts itself. Allocates
  // nothing.
  virtual Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) = 0;
  // Returns whether plan() needs all rows of a request together. Other plans get each row of a request with drafts as a
  // separate request of one row (runner/row_requests.h).
  virtual bool plans_requests() const { return false; }
  // Returns the bytes of device memory that the plan holds for its life, including its range of the step buffer.
  virtual std::int64_t bytes() const = 0;
  // Returns the names of the kernels that run for batches of this kind. Layers may use different kernels. The names are
  // for results and logs.
  virtual std::vector<std::string_view> kernels(BatchKind kind) const = 0;
};

// A node of the planned operator, with the types of the node's operands.
struct PlannedNode {
  const ir::Node* node = nullptr;
  std::vector<ir::Type> operands;
};

// The nodes, kernel and sizes for which a plan is made. Spans are valid only during the call of make() or
// bytes_needed().
struct PlanArgs {
  std::span<const PlannedNode> nodes;  // all nodes of the operator in the cache group
  std::string_view kernel;             // KernelDef::name of the planned kernel
  std::int64_t group = 0;
  std::int64_t num_pages = 0;  // number of pages of the group's cache; page ids are below this number
  PlanLimits limits;
};

// Makes the plans for a device's kernel. Both functions are set. The plan that make() returns occupies exactly as many
// bytes of device memory as bytes_needed() returns.
struct OpPlanner {
  // Makes a plan. `step` must outlive the plan. During make() the plan reserves a range of `step`. Before each forward,
  // plan() writes to this range.
  std::function<Result<std::unique_ptr<OpPlan>>(Device& device, const PlanArgs& args, StepBuffer& step)> make{};
  // Returns the bytes of device memory that make() will take, including the range that it reserves in the step buffer.
  std::function<Result<std::int64_t>(Device& device, const PlanArgs& args)> bytes_needed{};
};

// Finds the plan for the node's operator and cache group. The group's index is the node's attribute "group" (0 if
// absent). bind() of kernels calls it. Returns kFailedPrecondition if the context has no such plan.
Result<const OpPlan*> find_plan(const BindArgs& args);

// The nodes of one operator in one cache group, if the operator's kernel has a planner. They share one plan.
struct PlannedOp {
  std::string op;
  std::int64_t group = 0;
  const KernelDef* kernel = nullptr;  // the operator's kernel, which has a planner
  std::vector<PlannedNode> nodes;
};
// Finds the planned operators of `graphs`, in order of first appearance. The result points to nodes of the graphs and
// to kernels of the table.
Result<std::vector<PlannedOp>> find_planned_ops(std::span<const ir::Graph* const> graphs, const KernelTable& kernels);

}  // namespace tessera
