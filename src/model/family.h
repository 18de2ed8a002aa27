// Model families. Each is one file: what is its own in config.json, and its forward as a graph.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/model/config.h"
#include "tessera/model/fields.h"

namespace tessera {

class LayerBuilder;

struct ModelFamily {
  std::string_view architecture;  // as config.json has it: "LlamaForCausalLM"
  // What the architecture says by itself, and Hugging Face's defaults where a field is absent.
  ModelConfig defaults = {};
  // Whether it may rotate a part of each head ("partial_rotary_factor").
  bool partial_rotary = false;
  // Reads the fields that only this family has, or has in its own way, and sets sliding_windows: [num_hidden_layers].
  // Sizes, activation and norms are in `config` already.
  Status (*read_config)(const Fields& fields, ModelConfig& config) = nullptr;
  // input_ids, positions … → hidden [T, hidden]. The builder keeps the first error.
  ir::ValueId (*build_body)(LayerBuilder& b, const ModelConfig& config) = nullptr;
};

std::span<const ModelFamily> model_families();
const ModelFamily* find_family(std::string_view architecture);  // null where there is none
std::string family_names();                                     // "LlamaForCausalLM, …", for messages

}  // namespace tessera
