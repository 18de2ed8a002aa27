#include "tessera/engine/ranks/lockstep_peers.h"

#include <utility>

#include "tessera/engine/ranks/lockstep.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

class LockstepPeers final : public Peers {
 public:
  LockstepPeers(std::shared_ptr<Lockstep> group, int own) : group_(std::move(group)), own_(own) {}

  Status health() const override { return group_->health(); }

  Status meet() override { return group_->meet(own_, RankGroup::kLoadLimit); }
  Status compare_sizes(const DispatchTable& captured) override {
    return group_->agree(own_, captured.prefill_sizes, captured.decode_sizes);
  }

  bool awaiting() const override { return group_->awaits(own_); }
  void when_awaited(const std::function<void()>& call) override { group_->when_awaited(own_, call); }
  void begin_forward() override { group_->begin(own_); }
  Status run_idle_forward(ModelRunner& runner) override {
    if (!awaiting()) return ok_status();
    begin_forward();
    return runner.run_idle_forward();
  }

  void leave(ModelRunner& runner) override {
    const Status ended = runner.end_idle_forwards();
    group_->communicator(own_).abort(ended.ok() ? "its engine ends" : ended.message());
  }
  void fail(const Status& why) override { group_->communicator(own_).abort(why.message()); }

 private:
  std::shared_ptr<Lockstep> group_;
  int own_;
};

}  // namespace

Result<std::unique_ptr<Peers>> join_lockstep(const EngineOptions& options, EnginePlan& plan) {
  if (options.lockstep == nullptr) return internal_error("dp_attention is set without EngineOptions::lockstep");
  TRY(options.lockstep->agree(options.replica, plan.runner.prefill_sizes, plan.runner.decode_sizes));
  plan.runner.communicator = &options.lockstep->communicator(options.replica);
  return std::make_unique<LockstepPeers>(options.lockstep, options.replica);
}

}  // namespace tessera
