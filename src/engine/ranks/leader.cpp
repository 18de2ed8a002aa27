#include "tessera/engine/ranks/leader.h"

#include <utility>

#include "tessera/engine/ranks/engine_rank.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

class Leader final : public Peers {
 public:
  explicit Leader(std::unique_ptr<RankGroup> ranks) : ranks_(std::move(ranks)) {}

  Status health() const override { return ranks_->health(); }
  void when_lost(const std::function<void()>& call) override { ranks_->when_lost(call); }

  int ranks() const override { return ranks_->ranks(); }
  Result<std::vector<MemoryReport>> memory() override { return ranks_->memory(); }

  Status load_weights(const EnginePlan& plan, const std::function<Status()>& own) override {
    return ranks_->load(limits_of(plan), own);
  }

  Status encode_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                       const std::function<Status()>& own) override {
    return ranks_->encode_images(images, first_rows, own);
  }

  bool lose_exchanges() const override { return true; }

 private:
  std::unique_ptr<RankGroup> ranks_;
};

}  // namespace

Result<std::unique_ptr<Peers>> lead_ranks(const EngineOptions& options, Device& device, EnginePlan& plan) {
  return std::make_unique<Leader>(TRY(start_ranks(options, device, plan)));
}

}  // namespace tessera
