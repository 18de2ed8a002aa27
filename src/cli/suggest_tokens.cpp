#include "tessera/cli/suggest_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <utility>

#include "tessera/cli/serve/metrics_text.h"
#include "tessera/cli/table.h"
#include "tessera/engine/plan/plan_ladders.h"
#include "tessera/engine/plan/profile_store.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/schedule/simulation.h"
#include "tessera/load/load.h"

namespace tessera::cli {
namespace {

constexpr const char* kFlag = "--suggest-tokens";
constexpr std::string_view kOwnMetrics = "tessera:";
constexpr const char* kHistogram = "tessera:prefill_tokens";
// The greatest number of requests that are simulated. This many requests show the distribution of a service's forwards,
// and their simulation takes only seconds.
constexpr std::int64_t kMostRequests = 5000;
// No size is added once this share of the forwards runs without padding, because another size would help few forwards.
constexpr double kExactShare = 0.9;

Result<SeenForwards> simulated_forwards(const std::string& path, const EnginePlan& plan) {
  const RunnerOptions& runner = plan.runner;
  Load load = TRY(make_load({.trace = path, .num_prompts = kMostRequests}).with_context(kFlag));
  const tessera::CacheOptions cache{.groups = plan.memory.cache_groups, .page_size = runner.page_size};
  const std::int64_t room = std::min(runner.context_length, CacheManager(cache).max_tokens());
  if (room < 2) return invalid_argument(fmt::format("--context-length: {} leaves no room for a request", room));
  const std::int64_t clipped = clip_to_context(load, room);
  std::vector<SimulatedRequest> requests;
  for (LoadRequest& request : load.requests)
    requests.push_back({request.arrival_s, request.input_tokens, request.output_tokens, std::move(request.blocks)});
  // Simulates without graphs, so that the existing sizes do not influence how prompts are split.
  SimulationOptions simulation{
      .scheduler = {.limits = runner, .max_running = plan.max_running}, .cache = cache, .block_tokens = kBlockTokens};
  simulation.table.graphs_enabled = false;
  const Simulation done = TRY(simulate(requests, simulation));
  SeenForwards seen{.weights = TokenWeights(static_cast<std::size_t>(runner.max_tokens + 1)),
                    .how = fmt::format("of the first {} of a trace, scheduled in chunks of {} tokens at most",
                                       plural(std::ssize(requests), "request"), count_text(runner.max_tokens))};
  if (clipped > 0) seen.how += fmt::format("; {} shortened to {} tokens", plural(clipped, "request"), count_text(room));
  for (const auto& [tokens, forwards] : done.forward_tokens)
    seen.weights[static_cast<std::size_t>(tokens)] += static_cast<double>(forwards);
  return seen;
}

Result<SeenForwards> counted_forwards(const std::string& path, const RunnerOptions& runner) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const std::string text = TRY(read_text_file(path, kMostBytes).with_context(kFlag));
  const std::vector<HistogramBucket> buckets = TRY(read_histogram(text, kHistogram, path).with_context(kFlag));
  SeenForwards seen{.weights = TokenWeights(static_cast<std::size_t>(runner.max_tokens + 1)),
                    .how = fmt::format("counted by a server, as the largest of each bucket; at most {}",
                                       count_text(runner.max_tokens))};
  for (const HistogramBucket& bucket : buckets) {
    const double tokens = std::clamp(bucket.limit, 1.0, static_cast<double>(runner.max_tokens));
    seen.weights[static_cast<std::size_t>(tokens)] += bucket.count;
  }
  return seen;
}

std::string first_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(kOwnMetrics.size(), '\0');
  file.read(bytes.data(), std::ssize(bytes));
  return bytes;
}

// Returns the smallest number of tokens such that at least `share` of the forwards have no more tokens than this.
std::int64_t percentile(const TokenWeights& weights, double share) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (std::size_t tokens = 0; tokens < weights.size(); ++tokens) {
    sum += weights[tokens];
    if (sum >= share * all) return static_cast<std::int64_t>(tokens);
  }
  return std::ssize(weights) - 1;
}

Json ladder_json(const SuggestedLadder& ladder) {
  Json json = Json::object();
  json.set("sizes", Json::Array(ladder.sizes.begin(), ladder.sizes.end()));
  json.set("exact", ladder.waste.exact);
  json.set("served", ladder.waste.served);
  json.set("padding_tokens", ladder.waste.tokens);
  json.set("padding_time", ladder.waste.time);
  return json;
}

std::string flag_text(const TokenSuggestion& s) {
  return fmt::format("--piecewise-cuda-graph-tokens {}", fmt::join(s.proposed.sizes, ","));
}

}  // namespace

Result<SeenForwards> read_forwards(const std::string& path, const EnginePlan& plan) {
  if (std::error_code error; std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return invalid_argument(
        fmt::format("{}: {} is not a regular file; accepted: a trace, or a copy of /metrics", kFlag, path));
  // The file is read as metrics if it begins with a comment or with a metric's name. It begins with a name if a user
  // kept only some lines. Any other file is read as a trace, and the trace reader reports errors.
  const std::string begin = first_bytes(path);
  const bool metrics = begin.starts_with('#') || begin.starts_with(kOwnMetrics);
  SeenForwards seen = metrics ? TRY(counted_forwards(path, plan.runner)) : TRY(simulated_forwards(path, plan));
  if (std::accumulate(seen.weights.begin(), seen.weights.end(), 0.0) > 0) return seen;
  return invalid_argument(
      metrics
          ? fmt::format(
                "{}: the metrics in {} count no forward; accepted: metrics of a server that has computed requests",
                kFlag, path)
          : fmt::format(
                "{}: the requests of {} need no prefill of two tokens or more; accepted: a trace with longer prompts",
                kFlag, path));
}

Result<TokenSuggestion> suggest_tokens(const std::string& path, const EngineOptions& options) {
  const std::unique_ptr<Device> device = TRY(open_device(options));
  const EnginePlan plan = TRY(plan_engine(options, *device));
  SeenForwards seen = TRY(read_forwards(path, plan));
  const CostTable known = ProfileStore(options, plan, device->properties()).load_costs();
  const TokenCost cost = prefill_cost(known);
  TokenSuggestion s{.file = path,
                    .how = std::move(seen.how),
                    .forwards = std::accumulate(seen.weights.begin(), seen.weights.end(), 0.0),
                    .p50 = percentile(seen.weights, 0.5),
                    .p90 = percentile(seen.weights, 0.9),
                    .p99 = percentile(seen.weights, 0.99),
                    .costs_measured = !known.empty(),
                    .present = {.sizes = plan.runner.prefill_sizes, .waste = {}},
                    .proposed = {}};
  s.present.waste = padding_waste(s.present.sizes, cost, seen.weights);
  const LadderGoal goal{.time_waste = 0, .exact = kExactShare, .most_sizes = s.present.sizes.size(), .step = 1};
  s.proposed.sizes = fitted_ladder(plan.runner.max_tokens, cost, seen.weights, goal);
  s.proposed.waste = padding_waste(s.proposed.sizes, cost, seen.weights);
  return s;
}

Json to_json(const TokenSuggestion& s) {
  Json json = Json::object();
  json.set("file", s.file);
  json.set("forwards", s.forwards);
  json.set("forwards_are", s.how);
  json.set("p50", s.p50);
  json.set("p90", s.p90);
  json.set("p99", s.p99);
  json.set("costs_measured", s.costs_measured);
  json.set("present", ladder_json(s.present));
  json.set("proposed", ladder_json(s.proposed));
  json.set("flag", flag_text(s));
  return json;
}

std::string to_text(const TokenSuggestion& s) {
  std::string text = fmt::format("{}: {} {}\n", s.file, plural(std::llround(s.forwards), "forward"), s.how);
  text += fmt::format("  tokens of a forward: p50 {}, p90 {}, p99 {}\n\n", count_text(s.p50), count_text(s.p90),
                      count_text(s.p99));
  Table table({"prefill graphs", ">sizes", ">served", ">exactly", ">padding, of tokens", ">of time"});
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  for (const auto& [name, ladder] : {std::pair("present", &s.present), std::pair("proposed", &s.proposed)}) {
    const PaddingWaste& waste = ladder->waste;
    table.add({name, count_text(std::ssize(ladder->sizes)), percent(waste.served), percent(waste.exact),
               percent(waste.tokens), percent(waste.time)});
  }
  text += table.text();
  text += s.costs_measured ? "  time by measured costs\n" : "  time by an estimate: no costs were measured yet\n";
  return text + "\n" + flag_text(s) + "\n";
}

}  // namespace tessera::cli
