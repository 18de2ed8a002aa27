// Numbers the ranks of a model that is divided in two ways. Pipeline parallelism divides the layers into stages of
// consecutive layers. Tensor parallelism divides each layer of a stage among the stage's ranks.
//
// Ranks are numbered from the last stage to the first. Rank 0 schedules and answers the requests. The last stage
// computes the logits and chooses the tokens.
//
//   tp_size 2, pp_size 2    stage 0 (embedding, first layers)     ranks 2, 3
//                           stage 1 (last layers, head)           ranks 0, 1
#pragma once

namespace tessera {

struct RankLayout {
  int tp_size = 1;  // ranks in each stage
  int pp_size = 1;  // number of stages

  int ranks() const { return tp_size * pp_size; }
  // stage_of() returns a rank's stage, and rank_in_stage() its index in the stage. Stage 0 has the embedding, and stage
  // pp_size - 1 has the head.
  int stage_of(int rank) const { return pp_size - 1 - rank / tp_size; }
  int rank_in_stage(int rank) const { return rank % tp_size; }
  int rank_at(int stage, int rank_in_stage) const { return (pp_size - 1 - stage) * tp_size + rank_in_stage; }
};

}  // namespace tessera
