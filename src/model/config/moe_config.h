// Experts in place of MLPs: what config.json says of a mixture, in the spellings of all families.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// How a router's logits become the scores that the best experts are chosen by.
enum class RouterScoring : std::uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,  // of each by itself
};

struct MoeConfig {
  std::vector<bool> layers = {};  // [num_hidden_layers]: whether the layer has experts; others have an MLP
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;         // of one expert
  std::int64_t shared_intermediate_size = 0;  // of the MLP that every token goes through as well; 0: none
  bool shared_gate = false;                   // its output is scaled by sigmoid(w · x)
  RouterScoring scoring = RouterScoring::kSoftmax;
  bool normalise = false;             // the weights of the chosen are divided by their sum
  bool correction_bias = false;       // a bias for each expert joins the scores for the choice alone
  bool router_bias = false;           // a bias for each expert joins the logits
  bool expert_bias = false;           // of both matmuls of each expert
  std::int64_t groups = 1;            // experts in as many groups of neighbours …
  std::int64_t groups_per_token = 1;  // … of which the best so many are chosen from
  double scale = 1.0;                 // of the weights, after they were normalised
  bool mxfp4 = false;                 // the experts' matrices are stored, and multiplied by, in 4 bits
  double swiglu_limit = 0;            // above 0: experts have moe_experts' clamped_swiglu; 0: the config's hidden_act
};

}  // namespace tessera
