// The modes that `tessera verify` compares in addition to the one that its flags select.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/engine/engine_options.h"

namespace tessera::cli {

struct VerifyMode {
  std::string name;
  std::function<void(EngineOptions&)> change;
  bool restart = false;  // compares the second start, after a first one has left its measurements and choices in a
                         // cache
};

// Returns the modes: capture modes, graph modes, passes off, deterministic inference, and a start after another one.
std::vector<VerifyMode> verify_modes();

}  // namespace tessera::cli
