#include "tessera/cli/inspect/verify_modes.h"

#include "tessera/compile/pass.h"
#include "tessera/piecewise/ladder.h"

namespace tessera::cli {
namespace {

VerifyMode graphs(std::string name, GraphMode mode) {
  return {std::move(name), [mode](EngineOptions& o) { o.graphs.mode = mode; }};
}
VerifyMode captured(std::string name, CaptureMode mode) {
  return {std::move(name), [mode](EngineOptions& o) { o.graphs.capture = mode; }};
}

// Sets costs with which one full graph is faster than pieces at every prefill size.
void choose_full(EngineOptions& options) {
  CostTable costs;
  const std::vector<std::int64_t>& given = options.graphs.piecewise_tokens;
  for (const std::int64_t size : given.empty() ? prefill_ladder(8192) : given)
    costs.add_full(size, {.ratio = 0.5, .equal = true});
  options.known_costs = std::move(costs);
}

}  // namespace

std::vector<VerifyMode> verify_modes() {
  return {graphs("full_and_piecewise", GraphMode::kFullAndPiecewise),
          graphs("piecewise", GraphMode::kPiecewise),
          graphs("full", GraphMode::kFull),
          {"full by choice", choose_full},
          captured("eager capture", CaptureMode::kEager),
          captured("lazy capture", CaptureMode::kLazy),
          captured("core capture", CaptureMode::kCore),
          {"without passes",
           [](EngineOptions& o) {
             for (const Pass& pass : o.registry->passes) o.graphs.disabled_passes.emplace_back(pass.name);
           }},
          {"deterministic", [](EngineOptions& o) { o.deterministic = true; }},
          {"after a cache restart", [](EngineOptions&) {}, /*restart=*/true}};
}

}  // namespace tessera::cli
