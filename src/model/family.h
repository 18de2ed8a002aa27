// Describes model families. Each family has one source file, with code that reads the family's own fields of
// config.json and builds the graph of the family's forward.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/config/config.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

class LayerBuilder;
struct ModelOptions;

// The graph of a family's body, with a spec for each weight.
struct FamilyBody {
  ir::Graph graph;
  std::vector<WeightSpec> weights = {};
};

struct ModelFamily {
  std::string_view architecture;  // the name in config.json: "LlamaForCausalLM"
  // Properties of the architecture, and Hugging Face's defaults for absent fields.
  ModelConfig defaults = {};
  // Whether config.json may say that only a part of each head is rotated ("partial_rotary_factor").
  bool partial_rotary = false;
  // Whether config.json may say that queries grow with the position ("llama_4_scaling_beta").
  bool query_growth = false;
  // Whether the family's experts may be stored in MXFP4 ("quantization_config"). If so, `defaults.moe` is set.
  bool mxfp4_experts = false;
  // Reads the fields that only this family has, or that this family reads in its own way. Also sets
  // config.sliding_windows. When this function is called, sizes, activation and norms are already in `config`.
  Status (*read_config)(const Fields& fields, ModelConfig& config) = nullptr;
  // Builds the body. The graph's inputs are input_ids, positions and so on. Returns the last hidden states [T, hidden
  // size]. The builder keeps the first error.
  ir::ValueId (*build_body)(LayerBuilder& b, const ModelConfig& config) = nullptr;
  // Replaces build_body in a family whose body is written as text (model/text_body.h). The result must depend only on
  // the arguments.
  std::function<Result<FamilyBody>(const ModelConfig&, const ModelOptions&, const ir::OpTable&)> make_body{};
  // Builds the vision tower (model/vision/towers.h). The graph's inputs are S patches and their positions. Returns rows
  // for the body, [S / merged_patches(), row_values()]. Null if the family has no tower. In that case
  // `defaults.vision` is absent.
  ir::ValueId (*build_tower)(LayerBuilder& b, const VisionConfig& config) = nullptr;
  // Builds the checkpoint's next-token layer (layers/draft.h). This layer reads the body's hidden states and the tokens
  // that follow them. It returns hidden [T, hidden], which the head and the next draft read. `config` is the result of
  // with_draft_layer(). Null if the family has no next-token layer.
  ir::ValueId (*build_draft)(LayerBuilder& b, const ModelConfig& config) = nullptr;
  // A family may use the functions of another family. The next three members describe how it differs from that other
  // family. A member is empty if there is no such difference.

  // Converts config.json to the other family's fields.
  std::function<Result<Json>(const Json& config)> rewrite_config{};
  std::function<Result<ir::Graph>(ir::Graph body, const ir::OpTable&)> change_body{};
  // Returns the checkpoint's name for a tensor that the other family calls `tensor`.
  std::function<std::string(const std::string& tensor)> tensor_name{};
};

// The known families. One thread adds all families before any thread reads the registry. Afterwards the registry is
// immutable and thread-safe.
class FamilyRegistry {
 public:
  // Returns kInvalidArgument if the registry already has the architecture.
  Status add(ModelFamily family);
  const ModelFamily* find(std::string_view architecture) const;  // null if the architecture is unknown
  std::span<const ModelFamily> all() const { return families_; }
  std::string names() const;  // "LlamaForCausalLM, …", for messages
  // Returns a list that contains the known architecture with the name most similar to `architecture`, which may be
  // mistyped. The list is empty if no name is similar.
  std::vector<std::string> nearest(std::string_view architecture) const;

 private:
  std::vector<ModelFamily> families_;  // in the order in which they were added
};

const FamilyRegistry& built_in_families();

}  // namespace tessera
