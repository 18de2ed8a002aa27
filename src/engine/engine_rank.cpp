#include "tessera/engine/engine_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/engine/engine_node.h"
#include "tessera/runner/model_runner.h"

namespace tessera {
namespace {

// The sizes and pages that all ranks have.
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
    if (group.keeps_all())  // the pages of the others do not grow with the context
      plan.memory.context_tokens = std::min(plan.memory.context_tokens, (group.num_pages - 1) * plan.runner.page_size);
  }
  plan.notes.push_back(
      fmt::format("the KV cache has {} tokens, for which every rank has room", plan.memory.context_tokens));
}

class EngineRank final : public RankHost {
 public:
  EngineRank(EngineOptions options, int rank) : options_(std::move(options)), rank_(rank) {}

  Result<RankLimits> plan() override {
    device_ = TRY(open_device(options_, rank_));
    plan_ = TRY(plan_engine(options_, *device_, rank_));
    return limits_of(*plan_);
  }

  Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) override {
    cut_to(agreed, *plan_);
    plan_->runner.communicator = &communicator;
    plan_->runner.show_progress = false;
    const WeightSource source = TRY(weight_source(options_, plan_->graphs));
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
          .max_requests = plan.runner.max_requests};
}

MakeRankHost rank_hosts(const EngineOptions& options) {
  EngineOptions others = options;
  others.show_progress = false;
  others.start.reset();
  return [others](int rank) { return std::make_unique<EngineRank>(others, rank); };
}

Result<std::unique_ptr<RankGroup>> start_ranks(const EngineOptions& options, const DeviceProperties& device,
                                               EnginePlan& plan) {
  if (layout_of(options).ranks() == 1) return std::unique_ptr<RankGroup>();
  const std::shared_ptr<NodeGroup> nodes = TRY(join_nodes(options, device));
  std::unique_ptr<RankGroup> ranks = RankGroup::start({.ranks = layout_of(options).ranks(),
                                                       .stages = options.pp_size,
                                                       .limit = rank_limit(options),
                                                       .host = rank_hosts(options),
                                                       .nodes = nodes});
  cut_to(TRY(ranks->agree(limits_of(plan))), plan);
  plan.runner.communicator = &ranks->communicator();
  plan.runner.ranks = ranks.get();
  return ranks;
}

}  // namespace tessera
