// Defines the flags of low-rank adapters (LoRA).
#pragma once

#include <string>
#include <vector>

#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"

namespace tessera {

// Adds the flags for adapters (LoRA) to the current group. The flags are SGLang's, and vLLM's names are aliases.
// Parsing the flags fills `engine`.
void add_adapter_flags(CommandFlags& add, EngineOptions& engine);
// Appends a warning for each flag that has no effect because no adapters are served.
void warn_about_adapter_flags(const AdapterOptions& adapters, std::vector<std::string>& warnings);

}  // namespace tessera
