// Defines the families of Qwen3-Next and Qwen3.5. Every fourth layer has gated attention, and all other layers have a
// gated delta net.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily qwen3_next_family();        // "Qwen3NextForCausalLM"
ModelFamily qwen3_5_text_family();      // "Qwen3_5ForCausalLM"
ModelFamily qwen3_5_family();           // "Qwen3_5ForConditionalGeneration", with a vision tower
ModelFamily qwen3_5_moe_text_family();  // "Qwen3_5MoeForCausalLM"
ModelFamily qwen3_5_moe_family();       // "Qwen3_5MoeForConditionalGeneration", with a vision tower

}  // namespace tessera
