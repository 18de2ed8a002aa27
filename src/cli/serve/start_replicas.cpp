#include "tessera/cli/serve/start_replicas.h"

#include <fmt/format.h>

#include <future>
#include <thread>
#include <utility>

#include "tessera/cli/serve/several_nodes.h"
#include "tessera/cli/session/session.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_node.h"

namespace tessera::cli {
namespace {

Result<std::unique_ptr<Engine>> start_one(EngineOptions options, int replica, bool shows_progress) {
  options.show_progress = options.show_progress && shows_progress;
  options.replica = replica;
  Result<std::unique_ptr<Engine>> engine = start_engine(options);
  // Aborts the group, because the other replicas wait for this one.
  if (!engine.ok() && options.lockstep != nullptr)
    options.lockstep->communicator(replica).abort(engine.status().message());
  return engine;
}

// Creates the group in which the ranks of all replicas run each forward together. With several nodes, joins the other
// nodes and tells them the properties of this node's device.
Result<std::shared_ptr<Lockstep>> start_lockstep(const EngineOptions& options, int count) {
  if (options.nnodes == 1) return Lockstep::create(count, rank_limit(options));
  const std::unique_ptr<Device> device = TRY(open_device(options));
  TRY(plan_engine(options, *device));  // reports wrong options before the wait for other nodes
  announce_node(options);
  return Lockstep::create(count, rank_limit(options), TRY(join_nodes(options, device->properties())));
}

}  // namespace

// Destroys the engines in parallel. If they were destroyed one after another, each rank would wait in NCCL for the
// ranks of other processes.
StartedReplicas::~StartedReplicas() {
  std::vector<std::jthread> ending;
  for (std::unique_ptr<Engine>& engine : engines) ending.emplace_back([&engine] { engine.reset(); });
}

Result<StartedReplicas> start_replicas(const EngineOptions& options, int count) {
  StartedReplicas started;
  if (count == 1) {
    started.engines.push_back(TRY(start_engine(options)));
    return started;
  }
  EngineOptions shared = options;
  shared.replicas = count;
  TRY(check_ranks(shared));
  if (options.dp_attention) shared.lockstep = started.lockstep = TRY(start_lockstep(shared, count));
  const int here = replicas_here(shared);
  const int first = options.node_rank * here;
  std::vector<std::future<Result<std::unique_ptr<Engine>>>> starting;
  for (int r = first; r < first + here; ++r)
    starting.push_back(std::async(std::launch::async, start_one, shared, r, r == first));
  Status failed = ok_status();
  for (int r = first; r < first + here; ++r) {
    Result<std::unique_ptr<Engine>> engine = starting[static_cast<std::size_t>(r - first)].get();
    if (engine.ok()) {
      started.engines.push_back(*std::move(engine));
    } else if (failed.ok()) {
      failed = engine.status().with_context(fmt::format("replica {} of {}", r, count));
    }
  }
  if (!failed.ok()) return failed;
  return started;
}

}  // namespace tessera::cli
