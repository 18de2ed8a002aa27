// Makes plans for plugins' kernels. A plan is the data that a plugin's planner writes into the step buffer for every
// forward.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/op_plan.h"
#include "tessera/plugin/kernel.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Converts the limits to C. Sets `num_pages` to 0, because it depends on the cache group, which is only known when a
// planner is called.
tessera_plugin_limits to_c(const PlanLimits& limits);

class PluginPlan final : public OpPlan {
 public:
  // Creates a plan for `kernel`. Precondition: the kernel has a planner.
  static Result<std::unique_ptr<PluginPlan>> create(std::shared_ptr<const Kernel> kernel, const PlanArgs& args,
                                                    StepBuffer& step);
  static Result<std::int64_t> bytes_needed(const Kernel& kernel, const PlanArgs& args);

  Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) override;
  std::int64_t bytes() const override;
  std::vector<std::string_view> kernels(BatchKind kind) const override;

  // Returns the plan's address on the device. Precondition: the step buffer has memory.
  DeviceAddress address() const { return step_.device_address(offset_); }

 private:
  PluginPlan(std::shared_ptr<const Kernel> kernel, const PlanArgs& args, std::size_t bytes, StepBuffer& step);

  std::shared_ptr<const Kernel> kernel_;
  ir::Node node_;
  std::vector<tessera_plugin_type> operands_;
  tessera_plugin_limits limits_;
  std::size_t group_;
  std::size_t bytes_;
  StepBuffer& step_;
  std::size_t offset_;
  std::vector<std::int32_t> slots_;  // slots of the batch for which the plan is made
  std::vector<std::int32_t> pages_;
  std::vector<tessera_plugin_page_table> page_tables_;
};

// Returns the plan for the node's operator and cache group. The kernel gets this plan when it is bound.
Result<const PluginPlan*> find_plugin_plan(const BindArgs& args);

}  // namespace tessera::plugin
