#include "tessera/cli/verify_modes.h"

#include "tessera/compile/pass.h"

namespace tessera::cli {
namespace {

VerifyMode graphs(std::string name, GraphMode mode) {
  return {std::move(name), [mode](EngineOptions& o) { o.graphs.mode = mode; }};
}
VerifyMode captured(std::string name, CaptureMode mode) {
  return {std::move(name), [mode](EngineOptions& o) { o.graphs.capture = mode; }};
}

}  // namespace

std::vector<VerifyMode> verify_modes() {
  return {graphs("full_and_piecewise", GraphMode::kFullAndPiecewise),
          graphs("piecewise", GraphMode::kPiecewise),
          graphs("full", GraphMode::kFull),
          captured("lazy capture", CaptureMode::kLazy),
          captured("core capture", CaptureMode::kCore),
          {"without passes",
           [](EngineOptions& o) {
             for (const Pass& pass : pass_list()) o.graphs.disabled_passes.emplace_back(pass.name);
           }},
          {"deterministic", [](EngineOptions& o) { o.deterministic = true; }},
          {"after a cache restart", [](EngineOptions&) {}, /*restart=*/true}};
}

}  // namespace tessera::cli
