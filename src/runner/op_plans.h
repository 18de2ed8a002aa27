// Makes the plans of a model's operators, and runs the plans before every forward. A plan is CPU code that prepares an
// operator's kernels for the forward's batch (ops/contract/op_plan.h). Operators whose kernels need a plan are called
// planned operators. A planned operator has one plan for each cache group that its nodes use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op_plan.h"
#include "tessera/runner/row_requests.h"

namespace tessera {

class OpPlans {
 public:
  // The arguments from which plans are made. The graphs and the kernels only need to exist during create() and
  // bytes_needed().
  struct Source {
    std::span<const ir::Graph* const> graphs;
    const KernelTable& kernels;
    PlanLimits limits;
    std::span<const std::int64_t> num_pages;  // number of pages in each cache group, page 0 included

    bool is_state_group(std::int64_t group) const {
      const auto at = static_cast<std::size_t>(group);
      return !graphs.empty() && at < graphs[0]->cache_groups.size() &&
             graphs[0]->cache_groups[at].kind == ir::CacheGroup::Kind::kState;
    }
  };
  // Makes the plans. Each plan reserves its part of `step`. `step` must outlive the plans. After create() and before
  // the first plan(), call step.allocate().
  static Result<OpPlans> create(Device& device, const Source& source, StepBuffer& step);
  // Returns the device memory that create() will take, in bytes.
  static Result<std::int64_t> bytes_needed(Device& device, const Source& source);

  // Lists the plans in `context`. A kernel finds its plan there when the kernel is bound. This object may be moved
  // afterwards, but must outlive the kernels.
  void add_to(ForwardContext& context) const;
  // Calls OpPlan::plan of every plan with these arguments. If a decoding request has drafts and a plan does not need
  // whole requests, the plan gets each row as a separate request (row_requests.h). Allocates memory only for a batch
  // that is larger than all earlier ones.
  Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream);

  // Returns whether all operators with a state store it where ForwardBatch::checkpoints says. Only plans that get whole
  // requests (OpPlan::plans_requests) see the checkpoints. A plugin's plan does not get whole requests.
  bool takes_checkpoints() const { return takes_checkpoints_; }

  std::int64_t bytes() const;
  // Returns the names of the kernels that planned operators use: "fa3", "cpu", or "fa3, tessera" if layers differ.
  std::string kernels(BatchKind kind) const;

 private:
  struct Entry {
    std::string op;
    std::int64_t group = 0;
    std::unique_ptr<OpPlan> plan;
  };
  std::vector<Entry> entries_;
  bool takes_checkpoints_ = true;
  RowRequests row_requests_;
};

}  // namespace tessera
