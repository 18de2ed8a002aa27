// Measures a server under load as its clients see it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/progress.h"
#include "tessera/base/write_file.h"
#include "tessera/cli/bench/chrome_trace.h"
#include "tessera/cli/bench/latency_tables.h"
#include "tessera/cli/bench/local_server.h"
#include "tessera/cli/bench/serve_comparison.h"
#include "tessera/cli/bench/serve_profile.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/environment.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/open_files.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/load/run.h"
#include "tessera/load/served_drafts.h"

namespace tessera::cli {
namespace {

// If the client uses more than this share of a core, the client's own work affects the measurement.
constexpr double kBusyClient = 0.7;
constexpr std::size_t kFurtherConnections = 64;  // connections beyond one for each request of the load

using Clock = std::chrono::steady_clock;

struct Run {
  std::string label;
  std::optional<double> rate;  // unset: requests arrive at the recorded times
  std::optional<bool> graphs;
  LoadRun done{};
  Clock::time_point began{};  // start of the first counted request
  Clock::time_point ended{};
  std::optional<ServeTimes> times{};     // set if the engine was profiled
  std::optional<ServedDrafts> drafts{};  // set if the server reports them
};

std::string rate_text(std::optional<double> rate) {
  return !rate ? "as recorded" : std::isinf(*rate) ? "all at once" : fmt::format("{:g}/s", *rate);
}

// Returns the differences between the runs with graphs and the runs without graphs.
std::vector<RateComparison> compare(const std::vector<Run>& runs) {
  std::vector<GraphsRun> compared;
  for (const Run& run : runs)
    if (run.graphs)
      compared.push_back({.rate = rate_text(run.rate), .graphs = *run.graphs, .result = &run.done.result});
  return compare_graphs(compared);
}

class LoadBench {
 public:
  LoadBench(const BenchServeOptions& options, Load load) : options_(options), load_(std::move(load)) {}

  std::int64_t num_requests() const { return std::ssize(load_.requests); }
  // Runs the load at all rates, one after another.
  Status run(const LoadTarget& target, std::optional<bool> graphs, std::vector<Run>& runs) const {
    TRY(check_context(target));
    if (options_.request_rates.empty()) {
      const std::optional<double> rate = load_.recorded ? std::optional<double>() : INFINITY;
      runs.push_back(TRY(run_one(target, rate, graphs, 0)));
    }
    for (std::size_t i = 0; i < options_.request_rates.size(); ++i)
      runs.push_back(TRY(run_one(target, options_.request_rates[i], graphs, i)));
    return ok_status();
  }

 private:
  // Returns an error if the load has agents and the last prompt of an agent's session exceeds the server's context. All
  // prompts that exceed the context would be shortened to it, so they would no longer differ.
  Status check_context(const LoadTarget& target) const {
    const LoadOptions& load = options_.load;
    const std::int64_t most =
        target.context ? std::max<std::int64_t>(*target.context - load.output_tokens, 0) : load.agents.context;
    if (load.agents.sessions == 0 || load.agents.context <= most) return ok_status();
    return invalid_argument(
        fmt::format("--agent-context: {} is not accepted; with {} output tokens, the server's context has room for {}",
                    load.agents.context, load.output_tokens, most));
  }

  Result<Run> run_one(const LoadTarget& target, std::optional<double> rate, std::optional<bool> graphs,
                      std::size_t number) const {
    Run run{.label = label(rate, graphs), .rate = rate, .graphs = graphs};
    std::optional<Progress> progress;
    std::optional<ServedDrafts> before;
    run.done = TRY(run_load(target, load_,
                            {.rate = rate,
                             .seed = options_.load.seed,
                             .number = number,
                             .warmup = options_.warmup,
                             .max_concurrency = options_.max_concurrency,
                             .on_start =
                                 [&](std::int64_t requests) {
                                   before = ask_drafts(target.client);
                                   run.began = Clock::now();
                                   progress.emplace(run.label, requests, "requests", progress_wanted());
                                 },
                             .on_end = [&] { progress->advance(1); }}));
    run.ended = Clock::now();
    const std::optional<ServedDrafts> after = ask_drafts(target.client);
    if (before && after) run.drafts = after->since(*before);
    return run;
  }

  static std::string label(std::optional<double> rate, std::optional<bool> graphs) {
    std::string text = rate_text(rate);
    if (graphs) text += *graphs ? ", graphs on" : ", graphs off";
    return text;
  }

  const BenchServeOptions& options_;
  Load load_;
};

Json rate_json(double rate) { return std::isinf(rate) ? Json("inf") : Json(rate); }

Json options_json(const BenchServeOptions& options) {
  Json json = Json::object();
  const LoadOptions& load = options.load;
  json.set("num_prompts", load.agents.sessions > 0 ? Json() : Json(load.num_prompts)).set("seed", load.seed);
  json.set("lora_name", Json::Array(load.adapters.begin(), load.adapters.end()));
  if (!load.adapters.empty()) {
    json.set("lora_request_distribution", kAdapterDraws[static_cast<std::size_t>(load.adapter_draw)]);
    if (load.adapter_draw == AdapterDraw::kSkewed) json.set("lora_zipf_alpha", load.zipf_exponent);
  }
  if (load.trace.empty()) {
    json.set("arrivals", load.arrivals == Arrivals::kPoisson ? "poisson" : "uniform");
    json.set("output_len", load.output_tokens);
  } else {
    json.set("trace", load.trace);
  }
  if (const AgentOptions& agents = load.agents; agents.sessions > 0) {
    json.set("agents", agents.sessions).set("agent_turns", agents.turns).set("agent_context", agents.context);
    json.set("agent_first_len", agents.first_tokens).set("agent_tool_seconds", agents.tool_seconds);
    json.set("agent_results", agents.equal_results ? "equal" : "drawn");
  } else if (load.trace.empty()) {
    json.set("input_len", load.input_tokens).set("random_range_ratio", load.range_ratio);
  }
  Json::Array rates;
  for (const double rate : options.request_rates) rates.push_back(rate_json(rate));
  json.set("request_rate", std::move(rates)).set("max_concurrency", options.max_concurrency);
  return std::move(json.set("warmup", options.warmup));
}

Json drafts_json(const ServedDrafts& drafts) {
  Json json = Json::object();
  json.set("steps", drafts.steps).set("drafted", drafts.drafted).set("kept", drafts.kept);
  json.set("tokens_per_step", drafts.mean_length());
  json.set("drafted_at", Json::Array(drafts.drafted_at.begin(), drafts.drafted_at.end()));
  return std::move(json.set("kept_at", Json::Array(drafts.kept_at.begin(), drafts.kept_at.end())));
}

Json agents_json(const LoadRun& run) {
  Json::Array latencies;
  for (const PromptLatency& range : run.latencies) {
    Json entry = Json::object();
    entry.set("least_input_tokens", range.least_tokens).set("end_input_tokens", range.end_tokens);
    entry.set("requests", range.requests).set("mean_new_tokens", range.new_tokens);
    latencies.push_back(std::move(entry.set("ttft_ms", to_json(range.ttft))));
  }
  Json json = Json::object();
  return std::move(json.set("known_tokens", *run.known_tokens).set("latencies", std::move(latencies)));
}

Json to_json(const BenchServeOptions& options, const std::vector<Run>& runs) {
  Json json = Json::object();
  json.set("bench", "serve").set("model", options.url.empty() ? Json(options.engine.model_path) : Json());
  json.set("url", options.url.empty() ? Json() : Json(options.url));
  json.set("device", options.url.empty() ? Json(options.engine.device) : Json()).set("options", options_json(options));
  Json list = Json::array();
  for (const Run& run : runs) {
    Json entry = Json::object();
    entry.set("request_rate", run.rate ? rate_json(*run.rate) : Json());
    entry.set("graphs", run.graphs ? Json(*run.graphs) : Json()).set("clipped", run.done.clipped);
    entry.set("client_cpu_share", run.done.cpu_share);
    const Json measured = to_json(run.done.result);
    for (const auto& [key, value] : measured.as_object()) entry.set(key, value);
    entry.set("agents", run.done.known_tokens ? agents_json(run.done) : Json());
    entry.set("drafts", run.drafts ? drafts_json(*run.drafts) : Json());
    if (run.times) entry.set("profile", to_json(*run.times));
    list.push_back(std::move(entry));
  }
  json.set("runs", std::move(list));
  return std::move(json.set("comparison", to_json(compare(runs))));
}

std::string requests_text(const LoadOptions& load) {
  if (const AgentOptions& agents = load.agents; agents.sessions > 0)
    return fmt::format("{} of {} up to {} tokens, {} tokens out", plural(agents.sessions, "agent"),
                       plural(agents.turns, "turn"), count_text(agents.context), load.output_tokens);
  return fmt::format(
      "{} of {}", plural(load.num_prompts, "request"),
      load.trace.empty() ? fmt::format("{} tokens in and {} out", load.input_tokens, load.output_tokens) : load.trace);
}

std::string title(const BenchServeOptions& options) {
  const LoadOptions& load = options.load;
  const std::string server =
      options.url.empty() ? fmt::format("{}, on {}", options.engine.model_path, options.engine.device) : options.url;
  const std::string adapters =
      load.adapters.empty() ? "" : fmt::format(", with {}", plural(std::ssize(load.adapters), "adapter"));
  return fmt::format("serve of {}: {}{}\n\n", server, requests_text(load), adapters);
}

std::string to_text(const std::vector<Run>& runs) {
  std::vector<LabelledResult> rows;
  std::string notes;
  for (const Run& run : runs) {
    rows.push_back({.label = run.label,
                    .result = run.done.result,
                    .drafts = run.drafts,
                    .known_tokens = run.done.known_tokens,
                    .latencies = run.done.latencies});
    if (run.done.clipped > 0)
      notes += fmt::format("  {}: {} shortened to the context\n", run.label, plural(run.done.clipped, "request"));
    for (const auto& [reason, count] : run.done.result.failures)
      notes += fmt::format("  {}: {} failed: {}\n", run.label, count_text(count), reason);
  }
  std::string text = throughput_table(rows) + "\n" + latency_table(rows);
  if (const std::string drafts = drafts_table(rows); !drafts.empty()) text += "\n" + drafts;
  if (const std::string agents = agents_tables(rows); !agents.empty()) text += "\n" + agents;
  if (!notes.empty()) text += "\n" + notes;
  const std::string comparison = to_text(compare(runs));
  if (!comparison.empty()) text += "\n" + comparison;
  for (const Run& run : runs)
    if (run.times) text += fmt::format("\n{}\n\n{}", run.label, serve_times_text(*run.times));
  return text;
}

Status bench_elsewhere(const BenchServeOptions& options, const LoadBench& bench, std::vector<Run>& runs) {
  const char* const ca_file = process_environment("SSL_CERT_FILE");
  const std::unique_ptr<LoadClient> client =
      TRY(LoadClient::create(options.url, options.api_key, ca_file == nullptr ? "" : ca_file).with_context("--url"));
  const LoadTarget target = TRY(ask_target(*client, options.served_model_name, options.vocab_size));
  return bench.run(target, std::nullopt, runs);
}

// Adds the engine's times from `profile` to `runs`, and adds the timelines of `runs` to `trace`.
void add_profile(const EngineProfile& profile, std::span<Run> runs, std::int64_t first_process, ChromeTrace& trace) {
  const auto since = [&](Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(t - profile.origin).count();
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const TimeSpan during{since(runs[i].began), since(runs[i].ended)};
    runs[i].times = sum_up(profile, during);
    add_serve_timeline(profile, during, runs[i].label, first_process + static_cast<std::int64_t>(i), trace);
  }
}

// Runs the engines one after another, so that each has the machine to itself.
Status bench_here(const BenchServeOptions& options, const LoadBench& bench, std::vector<Run>& runs) {
  if (!options.profile.empty())
    TRY(write_file(options.profile, ""));  // reports an unwritable file before anything is measured
  ChromeTrace trace;
  std::vector<std::optional<bool>> kinds(options.graphs.begin(), options.graphs.end());
  if (kinds.empty()) kinds.emplace_back();
  for (const std::optional<bool> graphs : kinds) {
    EngineOptions engine = options.engine;
    engine.show_progress = progress_wanted();
    if (graphs) engine.graphs.disable_cuda_graph = !*graphs;
    std::unique_ptr<LocalServer> server =
        TRY(LocalServer::start({.engine = engine,
                                .model_name = options.served_model_name,
                                .connections = static_cast<std::size_t>(bench.num_requests()) + kFurtherConnections,
                                .profile = !options.profile.empty()}));
    const std::size_t first = runs.size();
    const std::unique_ptr<LoadClient> client = TRY(LoadClient::create(server->url(), ""));
    const LoadTarget target = TRY(ask_target(*client, options.served_model_name, server->config().vocab_size));
    TRY(bench.run(target, graphs, runs));
    if (options.profile.empty()) continue;
    add_profile(LocalServer::end_profile(std::move(server)), std::span(runs).subspan(first),
                static_cast<std::int64_t>(first) + 1, trace);
  }
  if (options.profile.empty()) return ok_status();
  return write_file(options.profile, std::move(trace).finish(options_json(options)).dump() + "\n");
}

}  // namespace

Status run_bench_serve(const BenchServeOptions& options) {
  allow_open_files();
  std::signal(SIGPIPE, SIG_IGN);
  const bool has_trace = !options.load.trace.empty();
  Load load = TRY(has_trace ? make_load(options.load).with_context("--trace") : make_load(options.load));
  if (options.load.agents.sessions == 0 && std::ssize(load.requests) < options.load.num_prompts)
    log_warn("bench", "the trace has {} requests, fewer than --num-prompts", load.requests.size());
  for (const double rate : options.request_rates) TRY(arrivals_at(load, rate).with_context("--request-rate"));
  const LoadBench bench(options, std::move(load));
  std::vector<Run> runs;
  TRY(options.url.empty() ? bench_here(options, bench, runs) : bench_elsewhere(options, bench, runs));

  TRY(write_output(options.json ? to_json(options, runs).dump() + "\n" : title(options) + to_text(runs)));
  for (const Run& run : runs) {
    if (run.done.cpu_share > kBusyClient)
      log_warn("bench", "{}: the client used {:.0f} % of a core, which shows in its times", run.label,
               100 * run.done.cpu_share);
    if (run.done.result.completed == 0)
      return internal_error(
          fmt::format("{}: no request succeeded: {}", run.label, run.done.result.failures.begin()->first));
  }
  return ok_status();
}

}  // namespace tessera::cli
