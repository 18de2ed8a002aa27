// The language models of Qwen2.5-VL and Qwen3-VL. They are Qwen2.5 and Qwen3 with positions in three dimensions.
// Prompts may have images among the tokens; the models' towers make the images' rows.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily qwen2_5_vl_family();  // "Qwen2_5_VLForConditionalGeneration"
ModelFamily qwen3_vl_family();    // "Qwen3VLForConditionalGeneration"
// "Qwen3VLMoeForConditionalGeneration": the body of Qwen3-MoE, whose experts are stored as transposed stacks.
ModelFamily qwen3_vl_moe_family();

}  // namespace tessera
