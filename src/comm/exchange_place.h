// Describes the place of a rank among the ranks, stages and nodes of the group.
#pragma once

#include "tessera/base/rank_layout.h"

namespace tessera {

// A rank's place. Every node has the same number of consecutive ranks. In a pipeline, every node has whole stages.
struct ExchangePlace {
  // layout.tp_size counts all ranks of a stage that exchange rows or sums in collectives. It also counts the ranks of
  // data-parallel attention, although each of these ranks has its own requests.
  RankLayout layout{};
  int rank = 0;  // this rank's number among the ranks of all stages
  int nodes = 1;

  int ranks_here() const { return layout.ranks() / nodes; }
  int node_of(int other) const { return other / ranks_here(); }
  bool is_here(int other) const { return node_of(other) == node_of(rank); }
  bool is_first_here() const { return rank % ranks_here() == 0; }
  // Returns whether the ranks of this rank's stage are in several processes.
  bool spans_processes() const { return nodes > 1 && layout.pp_size == 1; }
};

}  // namespace tessera
