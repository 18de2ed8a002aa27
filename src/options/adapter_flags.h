// Defines the flags of low-rank adapters (LoRA).
#pragma once

#include <string>
#include <vector>

#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"

namespace tessera {

// Adds SGLang's flags and vLLM's names for them to the current group. Parsing the flags fills `engine`.
void add_adapter_flags(CommandFlags& add, EngineOptions& engine);
// Appends a warning for each flag that has no effect because no adapters are served.
void warn_about_adapter_flags(const AdapterOptions& adapters, std::vector<std::string>& warnings);

}  // namespace tessera
