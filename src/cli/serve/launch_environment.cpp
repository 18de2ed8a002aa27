#include "tessera/cli/serve/launch_environment.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/cli/serve/several_nodes.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

struct Launcher {
  const char* size;
  std::array<const char*, 3> rank;  // the first of these variables that is set gives the rank; null ends the list
};

constexpr std::array kLaunchers = {
    Launcher{"WORLD_SIZE", {"RANK", "NODE_RANK", "GROUP_RANK"}},
    Launcher{"OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_RANK"}},
    Launcher{"PMI_SIZE", {"PMI_RANK"}},
    Launcher{"SLURM_NTASKS", {"SLURM_PROCID"}},
};
// The variable that is "True" if torchrun's own agent listens at MASTER_PORT.
constexpr const char* kAgentStore = "TORCHELASTIC_USE_AGENT_STORE";

std::string_view value_of(const Environment& get, const char* variable) {
  const char* const set = variable == nullptr ? nullptr : get(variable);
  return set == nullptr ? "" : set;
}

Result<std::int64_t> number_of(const Environment& get, const char* variable, IntegerRange range) {
  return parse_integer(std::string(variable) + " in the environment", value_of(get, variable), range);
}

struct Place {
  std::int64_t nodes = 1;
  std::int64_t node = 0;
  std::string variables;
};

Result<std::optional<Place>> find_place(const Environment& get) {
  for (const Launcher& launcher : kLaunchers) {
    for (const char* const rank : launcher.rank) {
      if (value_of(get, launcher.size).empty() || value_of(get, rank).empty()) continue;
      Place place{.nodes = TRY(number_of(get, launcher.size, {1, INT32_MAX})),
                  .variables = fmt::format("{} and {}", launcher.size, rank)};
      place.node = TRY(number_of(get, rank, {0, place.nodes - 1}));
      return std::optional<Place>(std::move(place));
    }
  }
  return std::optional<Place>();
}

// Sets dist_init_addr from the environment. Returns the names of the variables that were used; "" if none were.
Result<std::string> take_address(const Environment& get, EngineOptions& engine) {
  const std::string_view host = value_of(get, "MASTER_ADDR");
  if (host.empty() || value_of(get, "MASTER_PORT").empty()) return std::string();
  std::int64_t port = TRY(number_of(get, "MASTER_PORT", {1, 65534}));
  std::string source = "MASTER_ADDR and MASTER_PORT";
  if (value_of(get, kAgentStore) == "True") {
    ++port;
    source += ", whose port torchrun itself listens at: one more";
  }
  engine.dist_init_addr =
      host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
  return source;
}

}  // namespace

Result<std::string> take_launcher(const Environment& get, CommandLine& line) {
  EngineOptions* const engine = engine_on_nodes(line.command);
  if (engine == nullptr || all_ranks(*engine) == 1) return std::string();
  std::string said;
  FlagValue* const nnodes = find_free_flag(line, "--nnodes");
  FlagValue* const node_rank = find_free_flag(line, "--node-rank");
  if (nnodes != nullptr && node_rank != nullptr) {
    const std::optional<Place> place = TRY(find_place(get));
    if (!place || place->nodes == 1) return said;
    engine->nnodes = static_cast<int>(place->nodes);
    engine->node_rank = static_cast<int>(place->node);
    set_from_environment(*nnodes, place->nodes);
    set_from_environment(*node_rank, place->node);
    said = fmt::format("--nnodes {} and --node-rank {} by {}", place->nodes, place->node, place->variables);
  }
  FlagValue* const address = find_free_flag(line, "--dist-init-addr");
  if (engine->nnodes == 1 || address == nullptr) return said;
  if (const std::string source = TRY(take_address(get, *engine)); !source.empty()) {
    set_from_environment(*address, engine->dist_init_addr);
    said += fmt::format("{}--dist-init-addr {} by {}", said.empty() ? "" : "; ", engine->dist_init_addr, source);
  }
  return said;
}

}  // namespace tessera::cli
