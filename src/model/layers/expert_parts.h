// Finds one rank's experts, or the rank's slices of experts, in the tensors of a checkpoint. Knows every layout in
// which checkpoints store experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/model/config/config.h"
#include "tessera/model/layers/linear_parts.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// The experts that one rank has, and the rank's slice of each of these experts. A layer's experts are divided into
// ep_size groups of consecutive experts. Each group belongs to expert_ranks() / ep_size neighbouring ranks. Each of
// these ranks has a slice of the intermediate size of every expert in the group.
struct ExpertShare {
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  int slice = 0;  // index of the rank's slice of the intermediate size
  int slices = 1;
};
// Returns the share of this rank. Preconditions: ep_size divides expert_ranks() and the number of experts.
ExpertShare expert_share(const MoeConfig& moe, const ModelOptions& options);

// Finds the stored parts from which the weights of a rank's ExpertShare are read. The rank has two weights: one for the
// matrices gate and up of all its experts, and one for the matrices down. Borrows `tensors`. Precondition: the number
// of slices divides the intermediate size.
class ExpertParts {
 public:
  using Packed = PackedStorage::Content;

  ExpertParts(const ModelConfig& config, const ModelOptions& options, const ExpertTensors& tensors);

  bool are_separate() const { return tensors_.layout == ExpertLayout::kSeparate; }
  std::int64_t hidden_size() const { return hidden_; }
  std::int64_t whole_size() const { return size_; }   // the intermediate size
  std::int64_t local_size() const { return local_; }  // size of this rank's slice of the intermediate size
  std::int64_t local_experts() const { return share_.experts; }
  // Returns whether this rank adds the bias of the matrix down. The results of the ranks that share an expert are
  // summed, so exactly one of these ranks adds the bias.
  bool adds_down_bias() const { return share_.slice == 0; }

  std::vector<WeightPart> gate_up() const;  // [local_experts, 2 · local_size, H], rows of gate before those of up
  std::vector<WeightPart> down() const;     // [local_experts, H, local_size]
  // The next two functions return the parts of other ranks' experts (WeightSpec::elsewhere). The results are empty
  // unless experts have separate tensors.
  std::vector<WeightPart> gate_up_elsewhere() const;
  std::vector<WeightPart> down_elsewhere() const;

  // Returns the stored parts from which the MXFP4 values, or their scales, are read. The layout is that of GPT-OSS, for
  // E experts, hidden size H and intermediate size I. In this layout the rows of gate and up alternate:
  // "<prefix>gate_up_proj_blocks" [E, 2I, H/32, 16] and "…_scales" [E, 2I, H/32].
  std::vector<WeightPart> packed_gate_up(Packed content) const;
  // Like packed_gate_up(), for "<prefix>down_proj_blocks" [E, H, I/32, 16] and "…_scales" [E, H, I/32].
  std::vector<WeightPart> packed_down(Packed content) const;
  // Returns how many parameters share one stored byte: 2 for kFourBits, or 32 for scales.
  static std::int64_t values_of(Packed content);

  // The next two functions return the matrices of this rank's experts, or with kOthers the matrices of all other
  // experts. The result for kOthers is empty unless experts have separate tensors. The caller sets the formats of the
  // matrices.
  enum class Of : std::uint8_t { kThisRank, kOthers };
  std::vector<LinearPart> gate_up_matrices(Of of) const;
  std::vector<LinearPart> down_matrices(Of of) const;

  // Only layouts with all experts in one tensor have biases.
  std::vector<WeightPart> gate_up_bias() const;  // [local_experts, 2 · local_size]
  std::vector<WeightPart> down_bias() const;     // [local_experts, H]

 private:
  std::int64_t end() const { return share_.first_expert + share_.experts; }
  TensorSlice whole_experts() const;  // slice of a stack of all experts
  std::vector<std::int64_t> experts_elsewhere() const;
  std::vector<std::int64_t> experts_of(Of of) const;
  std::string module(std::int64_t expert, const std::string& name) const;  // returns the name without ".weight"
  // Returns the part as a matrix. `module` names the expert's module. It is used only if experts have separate tensors.
  LinearPart matrix_of(WeightPart part, std::string module) const;
  std::string separate(std::int64_t expert, const std::string& name) const;
  std::string packed_name(const char* name, Packed content) const;
  std::vector<std::int64_t> packed_shape(std::int64_t rows, std::int64_t columns, Packed content) const;
  WeightPart gate_or_up(std::int64_t expert, bool up) const;
  WeightPart down(std::int64_t expert) const;

  const ExpertTensors& tensors_;
  std::int64_t hidden_;
  std::int64_t size_;
  std::int64_t experts_;  // number of the layer's experts
  ExpertShare share_;
  std::int64_t local_;
  std::int64_t first_;  // index at which this rank's slice of the intermediate size begins
};

}  // namespace tessera
