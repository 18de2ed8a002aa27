// Holds the settings in config.json for mixtures of experts, which replace MLPs. The members of MoeConfig are the same
// for all families, although the files of different families spell the settings differently.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// The function that converts a router's logits to the scores by which the best experts are chosen.
enum class RouterScoring : std::uint8_t {
  kSoftmax,  // softmax over all experts
  kSigmoid,  // sigmoid of each expert's logit
};

struct MoeConfig {
  std::vector<bool> layers = {};  // [num_hidden_layers]: true if the layer has experts, false if it has an MLP
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;  // intermediate size of one expert
  // Intermediate size of the shared expert; 0 if there is none. The shared expert is an MLP that processes every token,
  // in addition to the chosen experts.
  std::int64_t shared_intermediate_size = 0;
  bool shared_gate = false;  // whether the shared expert's output is scaled by sigmoid(w · x)
  RouterScoring scoring = RouterScoring::kSoftmax;
  bool normalise = false;             // whether the weights of the chosen experts are divided by their sum
  bool correction_bias = false;       // whether experts are chosen by score + bias, but weighted by the score
  bool router_bias = false;           // whether a bias for each expert is added to the logits
  bool expert_bias = false;           // whether both matmuls of each expert have biases
  std::int64_t groups = 1;            // number of groups; a group is a range of consecutive experts
  std::int64_t groups_per_token = 1;  // number of best groups from which the experts are chosen
  double scale = 1.0;                 // factor of the chosen experts' weights, applied after `normalise`
  bool mxfp4 = false;                 // whether the experts' matrices are in MXFP4, in the file and on the device
  // If above 0, the experts' activation is clamped_swiglu (operator moe_experts) with this limit. If 0, the experts'
  // activation is the config's hidden_act.
  double swiglu_limit = 0;
};

}  // namespace tessera
