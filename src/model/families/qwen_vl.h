// Defines the language models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which are Qwen2, Qwen2.5 and Qwen3 with positions
// in three dimensions. Prompts may contain images. The models' vision towers compute the embedding rows of images.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily qwen2_vl_family();    // "Qwen2VLForConditionalGeneration"
ModelFamily qwen2_5_vl_family();  // "Qwen2_5_VLForConditionalGeneration"
ModelFamily qwen3_vl_family();    // "Qwen3VLForConditionalGeneration"
// "Qwen3VLMoeForConditionalGeneration": the body of Qwen3-MoE. The experts are stored as transposed stacks.
ModelFamily qwen3_vl_moe_family();

}  // namespace tessera
