// What a rank holds of a layer's experts, and which tensors of a checkpoint that is made of, in every layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// There are ep_size parts of neighbouring experts. Each part is on as many neighbouring ranks, which share the
// intermediate size of its experts.
struct ExpertShare {
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  int slice = 0;  // of the intermediate size
  int slices = 1;
};
// Preconditions: ep_size divides expert_ranks() and the number of experts.
ExpertShare expert_share(const MoeConfig& moe, const ModelOptions& options);

// A rank's share as parts of one value for all of its experts. Borrows `tensors`. Precondition: the intermediate size
// divides among the slices.
class ExpertParts {
 public:
  using Packed = PackedStorage::Content;

  ExpertParts(const ModelConfig& config, const ModelOptions& options, const ExpertTensors& tensors);

  std::int64_t local_size() const { return local_; }  // of the intermediate size
  std::int64_t local_experts() const { return share_.experts; }
  // Of partial sums only one may carry the bias.
  bool adds_down_bias() const { return share_.slice == 0; }

  std::vector<WeightPart> gate_up() const;  // [local_experts, 2 · local_size, H], gate above up
  std::vector<WeightPart> down() const;     // [local_experts, H, local_size]
  // What other ranks' experts are made of, where they have tensors of their own: WeightSpec::elsewhere.
  std::vector<WeightPart> gate_up_elsewhere() const;
  std::vector<WeightPart> down_elsewhere() const;

  // Bytes of MXFP4, or those of its factors, as published: gate and up in turn by rows, "<prefix>gate_up_proj_blocks"
  // [E, 2I, H/32, 16] and "…_scales" [E, 2I, H/32] …
  std::vector<WeightPart> packed_gate_up(Packed content) const;
  // … and "<prefix>down_proj_blocks" [E, H, I/32, 16], "…_scales" [E, H, I/32].
  std::vector<WeightPart> packed_down(Packed content) const;
  // Of an expert's values, those that one byte is for.
  static std::int64_t values_of(Packed content);

  // Biases exist in stacks alone.
  std::vector<WeightPart> gate_up_bias() const;  // [local_experts, 2 · local_size]
  std::vector<WeightPart> down_bias() const;     // [local_experts, H]

 private:
  std::int64_t end() const { return share_.first_expert + share_.experts; }
  TensorSlice whole_experts() const;  // of a stack of all
  std::vector<std::int64_t> experts_elsewhere() const;
  std::string separate(std::int64_t expert, const std::string& name) const;
  std::string packed_name(const char* name, Packed content) const;
  std::vector<std::int64_t> packed_shape(std::int64_t rows, std::int64_t columns, Packed content) const;
  WeightPart gate_or_up(std::int64_t expert, bool up) const;
  WeightPart down(std::int64_t expert) const;

  const ExpertTensors& tensors_;
  std::int64_t hidden_;
  std::int64_t size_;
  std::int64_t experts_;  // of the layer
  ExpertShare share_;
  std::int64_t local_;
  std::int64_t first_;  // of the intermediate size
};

}  // namespace tessera
