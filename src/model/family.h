// Model families. Each is one file: its own fields of config.json, and its forward as a graph.
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
  std::string_view architecture;  // the name in config.json: "LlamaForCausalLM"
  // Properties of the architecture, and Hugging Face's defaults for absent fields.
  ModelConfig defaults = {};
  // Whether the family may rotate a part of each head ("partial_rotary_factor").
  bool partial_rotary = false;
  // Whether its experts may be stored in MXFP4 ("quantization_config"). If so, its defaults have a mixture.
  bool mxfp4_experts = false;
  // Reads the fields that only this family has, or reads in its own way, and sets sliding_windows: [num_hidden_layers].
  // Sizes, activation and norms are already in `config`.
  Status (*read_config)(const Fields& fields, ModelConfig& config) = nullptr;
  // Builds the body: input_ids, positions … → hidden [T, hidden]. The builder keeps the first error.
  ir::ValueId (*build_body)(LayerBuilder& b, const ModelConfig& config) = nullptr;
  // Replaces build_body for a family whose body is written as text (model/text_body.h). It may depend only on the
  // config and the options.
  std::function<Result<FamilyBody>(const ModelConfig&, const ModelOptions&, const ir::OpTable&)> make_body{};
  // Builds the tower: patches and their places → rows for the body, X[S / merged patches, row_values()]
  // (model/vision/towers.h). Null: the family has no tower, and `defaults` has none.
  ir::ValueId (*build_tower)(LayerBuilder& b, const VisionConfig& config) = nullptr;
  // Builds the checkpoint's next-token layer: hidden states of the body and the tokens behind them → hidden [T,
  // hidden], which the head and the next draft read (layers/draft.h). `config` is with_draft_layer()'s. Null: the
  // family has none.
  ir::ValueId (*build_draft)(LayerBuilder& b, const ModelConfig& config) = nullptr;
  // The next three describe a family by its difference from another one, whose functions it uses. Empty: no difference.

  // Returns config.json with the other family's fields.
  std::function<Result<Json>(const Json& config)> rewrite_config{};
  std::function<Result<ir::Graph>(ir::Graph body, const ir::OpTable&)> change_body{};
  // Returns the checkpoint's name for a tensor that the other family calls `tensor`.
  std::function<std::string(const std::string& tensor)> tensor_name{};
};

// The known families. One thread adds them before anyone reads; after that the registry is immutable and thread-safe.
class FamilyRegistry {
 public:
  // Returns kInvalidArgument if the architecture is already there.
  Status add(ModelFamily family);
  const ModelFamily* find(std::string_view architecture) const;  // null if there is none
  std::span<const ModelFamily> all() const { return families_; }
  std::string names() const;  // "LlamaForCausalLM, …", for messages
  // Returns the architecture that is nearest to a mistyped name, or nothing.
  std::vector<std::string> nearest(std::string_view architecture) const;

 private:
  std::vector<ModelFamily> families_;  // in the order in which they were added
};

const FamilyRegistry& built_in_families();

}  // namespace tessera
