// Defines the family of GPT-OSS (GptOssForCausalLM): mixtures of experts with attention sinks, and with a sliding
// window in every other layer.
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily gpt_oss_family();

}  // namespace tessera
