// Model families. Each is one file: what is its own in config.json, and its forward as a graph.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

class LayerBuilder;
struct ModelOptions;

// A forward as a graph, with one spec for each of its weights.
struct FamilyBody {
  ir::Graph graph;
  std::vector<WeightSpec> weights = {};
};

struct ModelFamily {
  std::string_view architecture;  // as config.json has it: "LlamaForCausalLM"
  // What the architecture says by itself, and Hugging Face's defaults where a field is absent.
  ModelConfig defaults = {};
  // Whether it may rotate a part of each head ("partial_rotary_factor").
  bool partial_rotary = false;
  // Whether its experts may be stored in MXFP4 ("quantization_config"); its defaults have a mixture then.
  bool mxfp4_experts = false;
  // Reads the fields that only this family has, or has in its own way, and sets sliding_windows: [num_hidden_layers].
  // Sizes, activation and norms are in `config` already.
  Status (*read_config)(const Fields& fields, ModelConfig& config) = nullptr;
  // input_ids, positions … → hidden [T, hidden]. The builder keeps the first error.
  ir::ValueId (*build_body)(LayerBuilder& b, const ModelConfig& config) = nullptr;
  // In its place, for a family whose body is written as text (model/text_body.h). From the config and the options
  // alone.
  std::function<Result<FamilyBody>(const ModelConfig&, const ModelOptions&, const ir::OpTable&)> make_body{};
  // Patches and where they lie → rows for the body, X[S / merged patches, row_values()] (model/vision/towers.h). Null:
  // the family has no tower; its defaults have none then.
  ir::ValueId (*build_tower)(LayerBuilder& b, const VisionConfig& config) = nullptr;
  // For a family that is told by its difference from another, whose functions it has. Each may be empty: no difference.
  std::function<Result<Json>(const Json& config)> rewrite_config{};  // config.json with the other's fields
  std::function<Result<ir::Graph>(ir::Graph body, const ir::OpTable&)> change_body{};
  std::function<std::string(const std::string& tensor)> tensor_name{};  // the checkpoint's for the other's
};

// The families that a program knows. Adding is for one thread, before it is read; then immutable and thread-safe.
class FamilyRegistry {
 public:
  // kInvalidArgument for an architecture that is there already.
  Status add(ModelFamily family);
  const ModelFamily* find(std::string_view architecture) const;  // null where there is none
  std::span<const ModelFamily> all() const { return families_; }
  std::string names() const;  // "LlamaForCausalLM, …", for messages
  // The architecture that a mistyped name is nearest to, or none.
  std::vector<std::string> nearest(std::string_view architecture) const;

 private:
  std::vector<ModelFamily> families_;  // in the order in which they were added
};

const FamilyRegistry& built_in_families();

}  // namespace tessera
