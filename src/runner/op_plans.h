// The plans of a model's planned operators (ops/contract/op_plan.h): one for each operator and cache group of its
// graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera {

class OpPlans {
 public:
  // What plans are made from. Graphs and kernels are borrowed for the call.
  struct Source {
    std::span<const ir::Graph* const> graphs;
    const KernelTable& kernels;
    PlanLimits limits;
    std::span<const std::int64_t> num_pages;  // [cache groups], page 0 included
  };
  // `step` outlives the plans, and is allocated before the first plan().
  static Result<OpPlans> create(Device& device, const Source& source, StepBuffer& step);
  // What create() will take of the device's memory.
  static Result<std::int64_t> bytes_needed(Device& device, const Source& source);

  // Kernels that are bound with the context find their plans; this object or what it was moved to outlives them.
  void add_to(ForwardContext& context) const;
  // Calls every plan; OpPlan::plan has the parameters. Allocates nothing.
  Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream);

  std::int64_t bytes() const;
  // The kernels that planned operators run on, as results name them: "fa3", "cpu", "fa3, tessera" where layers differ.
  std::string kernels(BatchKind kind) const;

 private:
  struct Entry {
    std::string op;
    std::int64_t group = 0;
    std::unique_ptr<OpPlan> plan;
  };
  std::vector<Entry> entries_;
};

}  // namespace tessera
