#include "tessera/engine/ranks/engine_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/engine/plan/profile_store.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/plan/weight_load.h"
#include "tessera/engine/ranks/engine_node.h"
#include "tessera/runner/model_runner.h"

namespace tessera {
namespace {

// Cuts the plan to the sizes and pages that all ranks have.
void cut_to(const RankLimits& agreed, EnginePlan& plan) {
  plan.runner.prefill_sizes = agreed.prefill_sizes;
  plan.runner.decode_sizes = agreed.decode_sizes;
  plan.runner.vision.sizes = agreed.vision_sizes;
  if (agreed.num_pages == plan.runner.num_pages) return;
  plan.runner.num_pages = agreed.num_pages;
  plan.memory.kv_cache = 0;
  for (std::size_t g = 0; g < plan.memory.cache_groups.size(); ++g) {
    CacheGroupOptions& group = plan.memory.cache_groups[g];
    group.num_pages = agreed.num_pages[g];
    plan.memory.kv_cache += group.num_pages * group.page_bytes;
    if (group.keeps_all())  // the pages of other groups do not grow with the context
      plan.memory.context_tokens = std::min(plan.memory.context_tokens, (group.num_pages - 1) * plan.runner.page_size);
  }
  plan.notes.push_back(
      fmt::format("the KV cache has {} tokens, for which every rank has room", plan.memory.context_tokens));
}

// Plans for `max_running` running requests, the number that the ranks agreed on. If it is 0, plans for the number in
// the options.
Result<EnginePlan> plan_for(const EngineOptions& options, Device& device, int rank, std::int64_t max_running) {
  EngineOptions agreed = options;
  if (max_running > 0) agreed.max_running_requests = max_running;
  return plan_engine(agreed, device, rank);
}

// Plans rank 0 again for the number of requests that every rank has room for.
Status plan_again(const EngineOptions& options, Device& device, std::int64_t max_running, EnginePlan& plan) {
  const std::int64_t own = plan.max_running;
  plan = TRY(plan_for(options, device, 0, max_running));
  plan.notes.push_back(fmt::format("{} requests run at once, for whose states every rank has room{}", max_running,
                                   own > max_running ? fmt::format("; rank 0 alone would have it for {}", own) : ""));
  return ok_status();
}

class EngineRank final : public RankHost {
 public:
  EngineRank(EngineOptions options, int rank) : options_(std::move(options)), rank_(rank) {}

  Result<RankLimits> plan(std::int64_t max_running) override {
    if (device_ == nullptr) device_ = TRY(open_device(options_, rank_));
    plan_ = TRY(plan_for(options_, *device_, rank_, max_running));
    return limits_of(*plan_);
  }

  Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) override {
    cut_to(agreed, *plan_);
    plan_->runner.communicator = &communicator;
    plan_->runner.show_progress = false;
    const WeightSource source = TRY(weight_source(options_, *plan_));
    Weights weights = TRY(Weights::load(plan_->graphs.weights, source, *device_, /*show_progress=*/false));
    runner_ =
        TRY(ModelRunner::create(std::move(plan_->graphs), std::move(weights), *device_, std::move(plan_->runner)));
    return runner_.get();
  }

 private:
  EngineOptions options_;
  int rank_;
  std::unique_ptr<Device> device_;
  std::optional<EnginePlan> plan_;
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace

RankLimits limits_of(const EnginePlan& plan) {
  return {.num_pages = plan.runner.num_pages,
          .prefill_sizes = plan.runner.prefill_sizes,
          .decode_sizes = plan.runner.decode_sizes,
          .vision_sizes = plan.runner.vision.sizes,
          .max_running = plan.max_running};
}

MakeRankHost rank_hosts(const EngineOptions& options) {
  EngineOptions others = options;
  others.show_progress = false;
  others.start.reset();
  return [others](int rank) { return std::make_unique<EngineRank>(others, rank); };
}

Result<std::unique_ptr<RankGroup>> start_ranks(const EngineOptions& options, Device& device, EnginePlan& plan) {
  const std::shared_ptr<NodeGroup> nodes = TRY(join_nodes(options, device.properties()));
  std::unique_ptr<RankGroup> ranks = RankGroup::start({.ranks = layout_of(options).ranks(),
                                                       .stages = options.pp_size,
                                                       .limit = rank_limit(options),
                                                       .body = following(rank_hosts(options)),
                                                       .nodes = nodes});
  const auto again = [&](std::int64_t max_running) -> Result<RankLimits> {
    TRY(plan_again(options, device, max_running, plan));
    return limits_of(plan);
  };
  cut_to(TRY(ranks->agree(limits_of(plan), again)), plan);
  plan.runner.communicator = &ranks->communicator();
  plan.runner.ranks = ranks.get();
  return ranks;
}

Result<EnginePlan> plan_as_ranks(EngineOptions& options, Device& device) {
  EnginePlan plan = TRY(plan_engine_with_profile(options, device));
  const RankLayout layout = layout_of(options);
  const auto stages = [&](std::int64_t max_running) -> Result<std::vector<RankLimits>> {
    std::vector<RankLimits> limits;
    for (int stage = 0; stage + 1 < layout.pp_size; ++stage)
      limits.push_back(limits_of(TRY(plan_for(options, device, layout.rank_at(stage, 0), max_running))));
    return limits;
  };
  std::vector<RankLimits> others = TRY(stages(0));
  std::int64_t fewest = plan.max_running;
  std::int64_t most = fewest;
  for (const RankLimits& other : others) {
    fewest = std::min(fewest, other.max_running);
    most = std::max(most, other.max_running);
  }
  if (fewest != most) {
    TRY(plan_again(options, device, fewest, plan));
    others = TRY(stages(fewest));
  }
  RankLimits agreed = limits_of(plan);
  for (const RankLimits& other : others) TRY(agreed.agree(other));
  cut_to(agreed, plan);
  return plan;
}

}  // namespace tessera
