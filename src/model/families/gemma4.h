// Defines the families of Gemma 4. Its dense models (E2B, E4B) have per-layer embeddings, and their last layers reuse
// the KV caches of earlier layers. Its other models are mixtures of experts (26B-A4B).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily gemma4_family();         // Gemma4ForCausalLM
ModelFamily gemma4_nested_family();  // the text part of Gemma4ForConditionalGeneration

}  // namespace tessera
