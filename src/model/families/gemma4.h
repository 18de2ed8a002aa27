// Gemma 4: dense models with per-layer embeddings, whose last layers reuse the KV caches of earlier layers (E2B, E4B),
// and mixtures of experts (26B-A4B).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily gemma4_family();         // Gemma4ForCausalLM
ModelFamily gemma4_nested_family();  // the text part of Gemma4ForConditionalGeneration

}  // namespace tessera
