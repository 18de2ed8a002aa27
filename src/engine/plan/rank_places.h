// Places the ranks that an engine's options ask for: how many there are, on which nodes and devices, and with which
// part of the model.
#pragma once

#include <memory>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/comm/exchange_place.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_options.h"
#include "tessera/model/model.h"

namespace tessera {

// The largest number of ranks of one model.
inline constexpr int kMaxRanks = 64;

inline RankLayout layout_of(const EngineOptions& options) {
  return {.tp_size = options.tp_size, .pp_size = options.pp_size};
}
// Returns how many of an engine's ranks are in each process. Precondition: the options were checked (plan_engine,
// check_nodes).
inline int ranks_here(const EngineOptions& options) {
  return options.dp_attention ? layout_of(options).ranks() : layout_of(options).ranks() / options.nnodes;
}
// Returns the number of ranks among which each layer is divided. With dp_attention, these are all replicas, and each
// has requests of its own. Otherwise there are tp_size of these ranks, and all compute the same requests.
inline int ranks_of_layers(const EngineOptions& options) {
  return options.dp_attention ? options.replicas : options.tp_size;
}
// Returns the number of ranks, over all nodes, that compute every forward together.
inline int all_ranks(const EngineOptions& options) { return ranks_of_layers(options) * options.pp_size; }
// Returns the number of engines in this process that share the requests. Precondition: the options were checked, as for
// ranks_here().
inline int replicas_here(const EngineOptions& options) {
  return options.dp_attention ? options.replicas / options.nnodes : options.replicas;
}
// Returns whether ranks exchange rows within a layer.
inline bool exchanges_rows(const EngineOptions& options) { return options.tp_size > 1 || options.dp_attention; }
// Returns whether each rank captures and dispatches by itself and must decide the same as the other ranks.
inline bool dispatches_alike(const EngineOptions& options) { return options.dp_attention; }
// Returns whether the model is a pipeline of stages that run at the same time.
inline bool has_stages(const EngineOptions& options) { return options.pp_size > 1; }
// Returns the largest number of forwards in flight.
int most_in_flight(const EngineOptions& options);

// Checks nnodes, node_rank and dist_init_addr. Returns kInvalidArgument, or kUnimplemented for features that need all
// devices in one process.
Status check_nodes(const EngineOptions& options);
// Checks what can be checked about ranks and nodes before the model is built, such as counts that do not divide.
Status check_ranks(const EngineOptions& options);
// Returns kInvalidArgument if this process follows node 0 and has no engine of its own.
Status check_has_engine(const EngineOptions& options);

// Returns the place of `rank` among the ranks that exchange data. `rank` counts over all stages and processes, as in
// place_rank().
ExchangePlace exchange_place(const EngineOptions& options, int rank);

// Sets the part of the model that `rank` builds. `rank` counts over all stages and processes.
void place_rank(const EngineOptions& options, int rank, ModelOptions& model);

// Opens the device of a rank of this process, as the options name it.
Result<std::unique_ptr<Device>> open_device(const EngineOptions& options, int rank = 0);

}  // namespace tessera
