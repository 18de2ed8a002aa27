// The modes that `tessera verify` compares in addition to the mode that its flags select.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/engine/engine_options.h"

namespace tessera::cli {

struct VerifyMode {
  std::string name;
  std::function<void(EngineOptions&)> change;
  // Starts twice with one cache folder, and compares the second start, which uses what the first start has stored.
  bool restart = false;
};

// Returns the modes: capture modes, graph modes, disabled passes, deterministic inference, and a restart.
std::vector<VerifyMode> verify_modes();

}  // namespace tessera::cli
