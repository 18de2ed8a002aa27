#include "tessera/engine/plan/rank_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/net/socket.h"

namespace tessera {
namespace {

// The maximum number of forwards in flight in a pipeline, however many stages it has.
constexpr int kMostStepsOfStages = 4;

Status check_lockstep(const EngineOptions& options) {
  if (options.graphs.capture.value_or(CaptureMode::kEager) != CaptureMode::kEager)
    return unimplemented("enable_dp_attention captures every size at the start; no other mode of capture is accepted");
  return ok_status();
}

}  // namespace

int most_in_flight(const EngineOptions& options) { return std::max(2, std::min(options.pp_size, kMostStepsOfStages)); }

Status check_nodes(const EngineOptions& options) {
  if (options.nnodes < 1)
    return invalid_argument(fmt::format("nnodes: {} is not accepted; at least 1 is", options.nnodes));
  if (options.node_rank < 0 || options.node_rank >= options.nnodes)
    return invalid_argument(
        fmt::format("node_rank: {} is not accepted; 0 to {} is, by nnodes", options.node_rank, options.nnodes - 1));
  if (options.nnodes == 1) return ok_status();
  const int divided = ranks_of_layers(options);
  if (options.pp_size > 1 && options.pp_size % options.nnodes != 0)
    return invalid_argument(fmt::format(
        "nnodes: {} stages (pp_size) do not divide among {} nodes; a node has whole stages, of all their ranks",
        options.pp_size, options.nnodes));
  if (options.pp_size == 1 && divided % options.nnodes != 0)
    return invalid_argument(
        fmt::format("nnodes: {} ranks (tp_size) do not divide among {} nodes", divided, options.nnodes));
  if (options.dist_init_addr.empty())
    return invalid_argument("nnodes: dist_init_addr is missing, HOST:PORT of node 0, the same on all nodes");
  TRY(parse_node_address(options.dist_init_addr).with_context("dist_init_addr"));
  if (options.replicas > 1 && !options.dp_attention)
    return unimplemented(
        fmt::format("nnodes: with dp_size {} is not supported yet; accepted is dp_size 1, and several "
                    "groups of nodes behind a balancer",
                    options.replicas));
  if (options.pp_size == 1 && options.deterministic && options.device.starts_with("cuda"))
    return unimplemented(
        fmt::format("nnodes: {} nodes on device {} with enable_deterministic_inference are not supported: NCCL adds up "
                    "in an order that depends on the size of the batch; accepted is device cpu, or all ranks on one "
                    "machine",
                    options.nnodes, options.device));
  return ok_status();
}

Status check_ranks(const EngineOptions& options) {
  if (options.tp_size < 1 || options.tp_size > kMaxRanks)
    return invalid_argument(fmt::format("tp_size: {} is not accepted; 1 to {} is", options.tp_size, kMaxRanks));
  if (options.pp_size < 1 || options.pp_size * options.tp_size > kMaxRanks)
    return invalid_argument(fmt::format("pp_size: {} stages of {} ranks are not accepted; 1 to {} ranks in all are",
                                        options.pp_size, options.tp_size, kMaxRanks));
  TRY(check_nodes(options));
  if (options.dp_attention) TRY(check_lockstep(options));
  if (layout_of(options).ranks() > 1 && options.image_encoder != nullptr)
    return internal_error("EngineOptions::image_encoder is supported with one rank only");
  return ok_status();
}

Status check_has_engine(const EngineOptions& options) {
  if (options.node_rank == 0 || options.dp_attention) return ok_status();
  return invalid_argument(
      fmt::format("node_rank: node {} follows node 0 and has no engine of its own", options.node_rank));
}

void place_rank(const EngineOptions& options, int rank, ModelOptions& model) {
  const RankLayout layout = layout_of(options);
  model.tp_rank = layout.rank_in_stage(rank);
  model.tp_size = options.tp_size;
  model.ep_size = options.ep_size;
  model.dp_rank = options.dp_attention ? options.replica : 0;
  model.dp_size = options.dp_attention ? options.replicas : 1;
  model.pp_stage = layout.stage_of(rank);
  model.pp_size = options.pp_size;
}

ExchangePlace exchange_place(const EngineOptions& options, int rank) {
  if (options.dp_attention)
    return {.layout = {.tp_size = options.replicas}, .rank = options.replica, .nodes = options.nnodes};
  return {.layout = layout_of(options), .rank = rank, .nodes = options.nnodes};
}

Result<std::unique_ptr<Device>> open_device(const EngineOptions& options, int rank) {
  TRY(check_ranks(options));
  const int here = ranks_here(options);
  const int replicas = replicas_here(options);
  Result<std::unique_ptr<Device>> device = options.registry->devices.open(
      options.device, {.rank = options.replica % replicas * here + rank % here, .ranks = replicas * here});
  if (layout_of(options).ranks() == 1) return device;
  return std::move(device).with_context(
      options.pp_size == 1 ? fmt::format("tp_size: {}: rank {}", options.tp_size, rank)
                           : fmt::format("tp_size: {}, pp_size: {}: rank {}", options.tp_size, options.pp_size, rank));
}

}  // namespace tessera
