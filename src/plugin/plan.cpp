#include "tessera/plugin/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_values.h"

namespace tessera::plugin {
namespace {

tessera_plugin_limits limits_of(const PlanArgs& args) {
  tessera_plugin_limits limits = to_c(args.limits);
  limits.num_pages = args.num_pages;
  return limits;
}

Result<std::size_t> ask_bytes(const Kernel& kernel, const PlanArgs& args) {
  if (args.nodes.empty()) return internal_error("a plan of no nodes");
  const CNode node(*args.nodes[0].node, TRY(CNode::types(args.nodes[0].operands)));
  const tessera_plugin_limits limits = limits_of(args);
  std::size_t bytes = 0;
  const tessera_plugin_planner& planner = *kernel.planner();
  TRY(call([&](tessera_plugin_error* error) {
        return planner.bytes(planner.self, node.get(), &limits, &bytes, error);
      }).with_context(fmt::format("planner of {}", kernel.op())));
  return bytes;
}

}  // namespace

tessera_plugin_limits to_c(const PlanLimits& limits) {
  return {.size = sizeof(tessera_plugin_limits),
          .max_requests = limits.max_requests,
          .max_tokens = limits.max_tokens,
          .max_pages_per_request = limits.max_pages_per_request,
          .page_size = limits.page_size,
          .num_pages = 0,
          .deterministic = limits.deterministic ? 1 : 0};
}

PluginPlan::PluginPlan(std::shared_ptr<const Kernel> kernel, const PlanArgs& args, std::size_t bytes, StepBuffer& step)
    : kernel_(std::move(kernel)),
      node_(*args.nodes[0].node),
      limits_(limits_of(args)),
      group_(static_cast<std::size_t>(args.group)),
      bytes_(bytes),
      step_(step),
      offset_(step.reserve(bytes)) {
  const auto requests = static_cast<std::size_t>(args.limits.max_requests);
  slots_.reserve(static_cast<std::size_t>(args.limits.max_tokens));
  pages_.reserve(requests * static_cast<std::size_t>(args.limits.max_pages_per_request));
  page_tables_.reserve(requests);
}

Result<std::unique_ptr<PluginPlan>> PluginPlan::create(std::shared_ptr<const Kernel> kernel, const PlanArgs& args,
                                                       StepBuffer& step) {
  const std::size_t bytes = TRY(ask_bytes(*kernel, args));
  std::vector<tessera_plugin_type> operands = TRY(CNode::types(args.nodes[0].operands));
  std::unique_ptr<PluginPlan> plan(new PluginPlan(std::move(kernel), args, bytes, step));
  plan->operands_ = std::move(operands);
  return plan;
}

Result<std::int64_t> PluginPlan::bytes_needed(const Kernel& kernel, const PlanArgs& args) {
  return align_up(static_cast<std::int64_t>(TRY(ask_bytes(kernel, args))));
}

std::int64_t PluginPlan::bytes() const { return align_up(static_cast<std::int64_t>(bytes_)); }

std::vector<std::string_view> PluginPlan::kernels(BatchKind /*kind*/) const { return {kernel_->name()}; }

Status PluginPlan::plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& /*stream*/) {
  if (group_ < batch.groups.size()) {
    const CacheGroupBatch& group = batch.groups[group_];
    slots_.clear();
    pages_.clear();
    page_tables_.clear();
    for (const SlotId slot : group.slots) slots_.push_back(static_cast<std::int32_t>(slot.value()));
    std::size_t entries = 0;
    for (const PageTable& table : group.page_tables) entries += table.pages.size();
    pages_.reserve(entries);  // reserved, so that the tables' pointers stay valid
    for (const PageTable& table : group.page_tables) {
      const std::int32_t* first = pages_.data() + pages_.size();
      for (const PageId page : table.pages) pages_.push_back(static_cast<std::int32_t>(page.value()));
      page_tables_.push_back({.pages = first, .num_pages = table.pages.size(), .first_held = table.first_held});
    }
  }
  const CNode node(node_, operands_);
  const tessera_plugin_batch c{.size = sizeof(c),
                               .is_decode = kind == BatchKind::kDecode ? 1 : 0,
                               .padded_requests = padded_requests,
                               .num_tokens = batch.input_ids.size(),
                               .positions = batch.positions.data(),
                               .num_requests = batch.query_lens.size(),
                               .query_lens = batch.query_lens.data(),
                               .kv_lens = batch.kv_lens.data(),
                               .slots = slots_.data(),
                               .page_tables = page_tables_.data()};
  std::size_t written = 0;
  const tessera_plugin_planner& planner = *kernel_->planner();
  TRY(call([&](tessera_plugin_error* error) {
        return planner.plan(planner.self, node.get(), &limits_, &c, step_.host(offset_), &written, error);
      }).with_context(fmt::format("planner of {}", kernel_->op())));
  if (written > bytes_)
    return internal_error(
        fmt::format("planner of {}: it wrote {} bytes, and asked for {}", kernel_->op(), written, bytes_));
  if (written > 0) step_.written(offset_, written);
  return ok_status();
}

Result<const PluginPlan*> find_plugin_plan(const BindArgs& args) {
  return dynamic_cast<const PluginPlan*>(TRY(find_plan(args)));
}

}  // namespace tessera::plugin
