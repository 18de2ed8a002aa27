// The columns of the table of faults (table.cpp): the ways in which ranks share a model.
#pragma once

#include <array>
#include <string>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine.h"

namespace tessera::testing {

struct Topology {
  const char* name;
  int tp_size = 1;
  int pp_size = 1;      // rank 0 belongs to the last stage, rank 1 to the first
  int engines = 1;      // if several, each rank has an engine with requests of its own (DP attention)
  int nodes = 1;        // each has equally many ranks
  bool ahead = false;   // each step is enqueued before the preceding step is collected; stages always do so
  bool drafts = false;  // the ranks make drafts with a draft layer
  // Numbers of calls of a rank while a request runs. A fault at one of these calls fails the request.
  int last_replay = 11;   // the last replay
  int last_launch = 250;  // the last launch without graphs
  int lost_from = 40;     // a call in the middle of the request
  int lost_step = 1'000;  // the distance to the next call from which tests lose a device
  // A fault that can make the first of two requests fail while the second one goes on. Tests inject the fault at one
  // call after another. For each rank, the number of calls at which only the first request fails must be greater than
  // num_alone.
  std::int64_t FaultPlan::*alone_at_fault = &FaultPlan::replay_lost_at;
  int num_alone = 2;

  constexpr int ranks() const { return tp_size * pp_size * engines; }
  // Returns a rank's name in errors.
  std::string rank(int number) const { return "rank " + std::to_string(number) + " of " + std::to_string(ranks()); }
  std::string node(int number) const { return "node " + std::to_string(number) + " of " + std::to_string(nodes); }
};

constexpr Topology named(const char* name, Topology of) {
  of.name = name;
  return of;
}
constexpr Topology on_nodes(const char* name, Topology of, int nodes) {
  of.nodes = nodes;
  return named(name, of);
}
constexpr Topology ahead(const char* name, Topology of) {
  of.ahead = true;
  return named(name, of);
}
constexpr Topology stages(const char* name, int number, int last_replay = 7) {
  return {.name = name,
          .pp_size = number,
          .last_replay = last_replay,
          .last_launch = 60,
          .lost_from = 12,
          .alone_at_fault = &FaultPlan::replay_fails_at,
          .num_alone = 1};
}

inline constexpr Topology kRanks{.name = "Ranks", .tp_size = 2};
inline constexpr Topology kRanksOfNodes = on_nodes("RanksOfNodes", kRanks, 2);
inline constexpr Topology kFourRanks{.name = "FourRanks", .tp_size = 4};
inline constexpr Topology kStages = stages("Stages", 2);
inline constexpr Topology kFourStages = stages("FourStages", 4, /*last_replay=*/5);
inline constexpr Topology kEngines{.name = "Engines", .engines = 2, .last_replay = 9, .lost_from = 1, .lost_step = 11};
inline constexpr Topology kDraftingRanks{
    .name = "DraftingRanks", .tp_size = 2, .drafts = true, .lost_from = 20, .lost_step = 40};

inline constexpr std::array kTopologies = {
    kRanks,
    ahead("RanksAhead", kRanks),
    kRanksOfNodes,
    ahead("RanksOfNodesAhead", kRanksOfNodes),
    kFourRanks,
    on_nodes("FourRanksOfTwoNodes", kFourRanks, 2),
    on_nodes("FourRanksOfFourNodes", kFourRanks, 4),
    kStages,
    on_nodes("StagesOfNodes", kStages, 2),
    stages("ThreeStages", 3),
    on_nodes("FourStagesOfTwoNodes", kFourStages, 2),
    kEngines,
    on_nodes("EnginesOfNodes", kEngines, 2),
    kDraftingRanks,
    on_nodes("DraftingRanksOfNodes", kDraftingRanks, 2),
};

// Returns the options of the topology on one node. The device is "faulty".
EngineOptions options_of(const Topology& of);
// Returns options for the same model on one rank.
EngineOptions one_rank(const Topology& of);

}  // namespace tessera::testing
