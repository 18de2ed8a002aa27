// Where a rank stands, of ranks that divide a model both ways: into stages of neighbouring layers (pipeline parallel),
// and every layer of a stage among the stage's ranks (tensor parallel).
//
// Ranks are counted from the last stage's on: rank 0, which schedules and answers, is where logits and samples are.
//
//   tp_size 2, pp_size 2    stage 0 (embedding, first layers)     ranks 2, 3
//                           stage 1 (last layers, head)           ranks 0, 1
#pragma once

namespace tessera {

struct RankLayout {
  int tp_size = 1;  // ranks of a stage
  int pp_size = 1;  // stages

  int ranks() const { return tp_size * pp_size; }
  // 0: the stage that has the embedding; pp_size - 1: the one that has the head.
  int stage_of(int rank) const { return pp_size - 1 - rank / tp_size; }
  int rank_in_stage(int rank) const { return rank % tp_size; }
  int rank_at(int stage, int rank_in_stage) const { return (pp_size - 1 - stage) * tp_size + rank_in_stage; }
};

}  // namespace tessera
