// Mixtures of experts instead of MLPs: the fields of config.json, in the spellings of all families.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// The function that turns a router's logits into the scores by which the best experts are chosen.
enum class RouterScoring : std::uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,  // each expert by itself
};

struct MoeConfig {
  std::vector<bool> layers = {};  // [num_hidden_layers]: whether the layer has experts; others have an MLP
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;         // size of one expert
  std::int64_t shared_intermediate_size = 0;  // size of the MLP that processes every token as well; 0: none
  bool shared_gate = false;                   // whether the output of that MLP is scaled by sigmoid(w · x)
  RouterScoring scoring = RouterScoring::kSoftmax;
  bool normalise = false;             // divide the weights of the chosen experts by their sum
  bool correction_bias = false;       // a bias for each expert is added to the scores only for the choice
  bool router_bias = false;           // a bias for each expert is added to the logits
  bool expert_bias = false;           // both matmuls of each expert have biases
  std::int64_t groups = 1;            // number of groups of neighbouring experts
  std::int64_t groups_per_token = 1;  // number of best groups from which experts are chosen
  double scale = 1.0;                 // factor of the weights, after they were normalised
  bool mxfp4 = false;                 // the experts' matrices are stored, and multiplied, in 4 bits
  double swiglu_limit = 0;            // above 0: experts use moe_experts' clamped_swiglu; 0: the config's hidden_act
};

}  // namespace tessera
