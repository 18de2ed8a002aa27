#include "tessera/engine/report/engine_report.h"

#include <optional>
#include <string>

#include "tessera/base/log.h"

namespace tessera {
namespace {

// Returns how many sizes were bound to kernels and addresses since the start.
std::int64_t shape_compiles(const ModelRunner& runner) {
  return runner.prefill().executable().num_binds() + runner.decode().executable().num_binds() +
         runner.head().executable().num_binds();
}

}  // namespace

void EngineReport::submitted(const ScheduledBatch& batch) {
  recorder_.add(batch, scheduler_);
  const std::optional<std::string> warning =
      watch_.add(batch.decision, shape_compiles(*model_.runner), FallbackWatch::Clock::now());
  if (warning) log_warn("dispatch", "{}", *warning);
  ++steps_;
}

void EngineReport::worked_idly() { watch_.bound_meanwhile(shape_compiles(*model_.runner)); }

void EngineReport::read(EngineStats& stats) const {
  scheduler_.report(stats);
  stats.images.cached_bytes = scheduler_.num_image_rows() * model_.runner->embedding_row_bytes();
  stats.steps = steps_;
  stats.forwards = model_.runner->counters();
  stats.graphs = inventory_.of(*model_.runner, *model_.peers);
  stats.profile_cache_hits = model_.profiles->cache_hits();
}

}  // namespace tessera
