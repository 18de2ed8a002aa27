// The ways to run that `tessera verify` compares, beside the one that its flags say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/engine/engine_plan.h"

namespace tessera::cli {

struct VerifyMode {
  std::string name;
  std::function<void(EngineOptions&)> change;
  bool restart = false;  // a first start leaves its measurements and choices in a cache; the second one is compared
};

// Capture modes, graph modes, passes off, deterministic inference, and the start after another.
std::vector<VerifyMode> verify_modes();

}  // namespace tessera::cli
