// Defines the families of Gemma 2 (Gemma2ForCausalLM) and Gemma 3 (Gemma3ForCausalLM, and the text part of
// Gemma3ForConditionalGeneration).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily gemma2_family();
ModelFamily gemma3_family();
ModelFamily gemma3_nested_family();

}  // namespace tessera
