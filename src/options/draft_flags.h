// Defines the flags of speculative decoding.
#pragma once

#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"

namespace tessera {

// Adds SGLang's flags and vLLM's --speculative-config to the current group. Parsing the flags fills `engine`.
void add_draft_flags(CommandFlags& add, EngineOptions& engine);

}  // namespace tessera
