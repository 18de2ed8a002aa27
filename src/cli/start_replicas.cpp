#include "tessera/cli/start_replicas.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "tessera/cli/session.h"
#include "tessera/engine/engine_node.h"
#include "tessera/engine/lockstep.h"

namespace tessera::cli {
namespace {

Result<std::unique_ptr<Engine>> start_one(EngineOptions options, int replica, int count) {
  options.show_progress = options.show_progress && replica == 0;
  options.replica = replica;
  options.replicas = count;
  Result<std::unique_ptr<Engine>> engine = start_engine(options);
  // The others wait for it.
  if (!engine.ok() && options.lockstep != nullptr)
    options.lockstep->communicator(replica).abort(engine.status().message());
  return engine;
}

}  // namespace

Result<std::vector<std::unique_ptr<Engine>>> start_replicas(const EngineOptions& options, int count) {
  std::vector<std::unique_ptr<Engine>> engines;
  if (count == 1) {
    engines.push_back(TRY(start_engine(options)));
    return engines;
  }
  EngineOptions shared = options;
  if (options.dp_attention) shared.lockstep = Lockstep::create(count, rank_limit(options));
  std::vector<std::future<Result<std::unique_ptr<Engine>>>> starting;
  for (int r = 0; r < count; ++r) starting.push_back(std::async(std::launch::async, start_one, shared, r, count));
  Status failed = ok_status();
  for (int r = 0; r < count; ++r) {
    Result<std::unique_ptr<Engine>> engine = starting[static_cast<std::size_t>(r)].get();
    if (engine.ok()) {
      engines.push_back(*std::move(engine));
    } else if (failed.ok()) {
      failed = engine.status().with_context(fmt::format("replica {} of {}", r, count));
    }
  }
  if (!failed.ok()) return failed;
  return engines;
}

}  // namespace tessera::cli
