#include "tessera/cli/serve/several_nodes.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <variant>

#include "tessera/cli/bench/bench.h"
#include "tessera/cli/output.h"
#include "tessera/cli/serve/stop_signal.h"
#include "tessera/cli/session/effective_config.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_node.h"

namespace tessera::cli {
namespace {

struct EngineOnNodes {
  EngineOptions* operator()(GenerateOptions& options) const { return &options.engine; }
  EngineOptions* operator()(BatchOptions& options) const { return &options.engine; }
  EngineOptions* operator()(ChatOptions& options) const { return &options.engine; }
  EngineOptions* operator()(ScoreOptions& options) const { return &options.engine; }
  EngineOptions* operator()(ServeOptions& options) const {
    return options.replicas == 1 || options.engine.dp_attention ? &options.engine : nullptr;
  }
  EngineOptions* operator()(VerifyOptions& options) const { return options.modes ? nullptr : &options.engine; }
  // Returns null for the other benchmarks, which start engines of their own or time a single rank.
  EngineOptions* operator()(BenchOptions& options) const {
    const bool forwards = options.kind == BenchKind::kPrefill || options.kind == BenchKind::kDecode;
    return forwards ? &options.engine : nullptr;
  }
  template <class Other>
  EngineOptions* operator()(Other&) const {
    return nullptr;
  }
};

}  // namespace

EngineOptions* engine_on_nodes(Command& command) { return std::visit(EngineOnNodes(), command); }

Status check_nodes_of(Command& command) {
  const EngineOptions* const engine = engine_of(command);
  if (engine == nullptr || engine->nnodes == 1 || std::holds_alternative<ExplainOptions>(command)) return ok_status();
  if (engine_on_nodes(command) != nullptr) return ok_status();
  return unimplemented(fmt::format(
      "--nnodes: {} is accepted by generate, chat, score, bench prefill, bench decode, verify without "
      "--modes, and serve without --dp-size or with --enable-dp-attention; this command runs on one machine",
      engine->nnodes));
}

namespace {

// Delays the end of this node after a stop signal. Node 0 must end its requests first, and both nodes then leave
// together. This node leaves alone if node 0 does not end within the time limit, or at a second signal.
class Leaving {
 public:
  Status watch(const std::shared_ptr<NodeGroup>& nodes, double patience_s) {
    const auto patience = std::chrono::duration<double>(patience_s);
    leaving_ = std::jthread([this, nodes, patience](const std::stop_token& ended) { wait(*nodes, patience, ended); });
    signals_ = TRY(StopSignal::watch({SIGINT, SIGTERM}, [this, nodes, patience](int count) {
      write_error(count == 1 ? fmt::format("\nStopping when node 0 does, in {} s at the latest. Once more to stop at "
                                           "once.\n",
                                           patience.count())
                             : std::string("\nStopping at once.\n"));
      if (count > 1) nodes->leave();
      const std::lock_guard lock(mutex_);
      told_ = true;
      changed_.notify_all();
    }));
    return ok_status();
  }
  ~Leaving() { signals_.reset(); }

 private:
  void wait(NodeGroup& nodes, std::chrono::duration<double> patience, const std::stop_token& ended) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, ended, [this] { return told_; })) return;
    changed_.wait_for(lock, ended, patience, [] { return false; });
    nodes.leave();
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool told_ = false;
  std::unique_ptr<StopSignal> signals_;
  std::jthread leaving_;
};

// Returns the engine's options of this command, with the same changes that node 0 makes to its own options.
EngineOptions follower_options(const Command& command) {
  const auto* const bench = std::get_if<BenchOptions>(&command);
  return bench == nullptr ? *engine_of(command) : bench_engine_options(*bench);
}

}  // namespace

void prepare_nodes(const EngineOptions& options) {
  if (options.nnodes == 1 || !options.device.starts_with("cuda")) return;
  (void)setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);  // safe, since the process has no other thread yet
}

void announce_node(const EngineOptions& options) {
  const int ranks = all_ranks(options);
  const int here = ranks / options.nnodes;
  const int first = options.node_rank * here;
  const std::string own =
      here == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, first + here - 1);
  write_error(fmt::format("Node {} of {}, {} of {}: {} {}\n", options.node_rank, options.nnodes, own, ranks,
                          options.node_rank == 0 ? "waiting for the others at" : "joining node 0 at",
                          options.dist_init_addr));
}

Status run_follower(const Command& command) {
  const EngineOptions options = follower_options(command);
  TRY(check_ranks(options));
  announce_node(options);
  std::optional<Leaving> leaving;
  TRY(follow_engine(options, [&](const std::shared_ptr<NodeGroup>& nodes) -> Status {
    write_error(fmt::format("Node {} of {}: follows node 0\n", options.node_rank, options.nnodes));
    constexpr double kMore = 10;  // additional seconds in which node 0 can announce its end
    const auto* const serve = std::get_if<ServeOptions>(&command);
    return serve == nullptr ? ok_status() : leaving.emplace().watch(nodes, serve->drain_s + kMore);
  }));
  write_error(fmt::format("Node {} of {}: ended\n", options.node_rank, options.nnodes));
  return ok_status();
}

}  // namespace tessera::cli
