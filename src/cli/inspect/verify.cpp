#include "tessera/runner/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/cli/commands.h"
#include "tessera/cli/inspect/verify_modes.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/engine/plan/profile_store.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/plan/weight_load.h"
#include "tessera/engine/ranks/peers.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/runner/verify/soak.h"

namespace tessera::cli {
namespace {

// The KV cache has room for this many tokens per request. The batches of verify() need no more, so the cache is made
// smaller than an engine's.
constexpr std::int64_t kCachedTokensPerRequest = 64;

Status no_graphs() { return failed_precondition("there are no graphs to verify"); }

struct Verified {
  std::string mode;
  VerifyReport report;
  std::vector<std::string> dropped;  // sizes that could not be captured, and why
};

// A runner like an engine's, but with a smaller KV cache.
class VerifiedRunner {
 public:
  static Result<std::unique_ptr<VerifiedRunner>> create(EngineOptions options) {
    auto made = std::unique_ptr<VerifiedRunner>(new VerifiedRunner);
    made->device_ = TRY(open_device(options));
    EnginePlan plan = TRY(plan_engine_with_profile(options, *made->device_));
    made->profiles_.emplace(options, plan, made->device_->properties());
    made->profiles_->restore_algorithms();
    made->peers_ = TRY(start_peers(options, *made->device_, plan));
    RunnerOptions& runner = plan.runner;
    const std::int64_t tokens = runner.max_requests * kCachedTokensPerRequest + runner.max_tokens;
    const std::int64_t pages = tokens / runner.page_size + runner.max_requests + 2;
    for (std::int64_t& group_pages : runner.num_pages) group_pages = std::min(group_pages, pages);
    const WeightSource source = TRY(weight_source(options, plan));
    Weights weights = TRY(Weights::allocate(plan.graphs.weights, *made->device_));
    const auto load = [&] {
      return fill_weights(plan.graphs.weights, weights.addresses(), source, *made->device_, options.show_progress);
    };
    TRY(made->peers_->load_weights(plan, load));
    made->runner_ =
        TRY(ModelRunner::create(std::move(plan.graphs), std::move(weights), *made->device_, std::move(runner)));
    made->runner_->set_costs(made->profiles_->load_costs());
    TRY(made->runner_->capture());
    TRY(made->runner_->capture_rest());
    return made;
  }

  ModelRunner& runner() { return *runner_; }
  bool has_graphs() const {
    return !runner_->prefill().report().captured.empty() || !runner_->decode().report().captured.empty();
  }
  // Does all the work that a server does while it is idle, and saves the results for a later start.
  Status measure_and_save() {
    while (TRY(runner_->idle_work()) || TRY(profiles_->measure_algorithms(*device_))) {
    }
    profiles_->save(runner_->costs());
    return ok_status();
  }
  std::vector<std::string> dropped() const {
    std::vector<std::string> lines;
    for (const GraphRunner* graphs : {&runner_->prefill(), &runner_->decode()}) {
      for (const auto& [size, status] : graphs->report().dropped)
        lines.push_back(fmt::format("{} size {}: {}", graphs->name(), size, status.message()));
    }
    return lines;
  }

 private:
  VerifiedRunner() = default;
  std::unique_ptr<Device> device_;
  std::optional<ProfileStore> profiles_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<ModelRunner> runner_;
};

// A cache folder for two successive starts. The destructor removes it.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    if (error) return not_found(fmt::format("the folder for temporary files (TMPDIR): {}", error.message()));
    std::string path = (parent / "tessera-verify-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr)
      return not_found(fmt::format("no folder for a cache can be made: {}: {}", path, std::strerror(errno)));
    return TemporaryFolder(std::move(path));
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<Verified> verify_mode(EngineOptions options, const VerifyMode& mode) {
  options.show_progress = progress_wanted();
  if (mode.change) mode.change(options);
  std::optional<TemporaryFolder> cache;
  if (mode.restart) {
    cache.emplace(TRY(TemporaryFolder::create()));
    options.cache_dir = cache->path();
    const std::unique_ptr<VerifiedRunner> first = TRY(VerifiedRunner::create(options));
    TRY(first->measure_and_save());
  }
  const std::unique_ptr<VerifiedRunner> verified = TRY(VerifiedRunner::create(options));
  VerifyReport report = TRY(verify(verified->runner(), options.show_progress));
  return Verified{.mode = mode.name, .report = std::move(report), .dropped = verified->dropped()};
}

// A summary of one runner's comparisons.
struct Summary {
  std::string runner;
  std::vector<std::int64_t> sizes;
  std::int64_t comparisons = 0;
  std::int64_t differences = 0;
};

std::vector<Summary> summarize(const VerifyReport& report) {
  std::vector<Summary> summaries;
  for (const VerifyRow& row : report.rows) {
    if (summaries.empty() || summaries.back().runner != row.runner)
      summaries.push_back({.runner = row.runner, .sizes = {}});
    Summary& summary = summaries.back();
    if (summary.sizes.empty() || summary.sizes.back() != row.size) summary.sizes.push_back(row.size);
    ++summary.comparisons;
    summary.differences += !row.difference.empty();
  }
  return summaries;
}

Json to_json(const Verified& verified) {
  Json runners = Json::object();
  for (const Summary& summary : summarize(verified.report)) {
    Json runner = Json::object();
    runner.set("sizes", Json::Array(summary.sizes.begin(), summary.sizes.end()));
    runner.set("comparisons", summary.comparisons).set("differences", summary.differences);
    runners.set(summary.runner, std::move(runner));
  }
  Json rows = Json::array();
  for (const VerifyRow& row : verified.report.rows) {
    if (row.difference.empty()) continue;
    Json json = Json::object();
    json.set("runner", row.runner).set("size", row.size).set("real", row.real).set("difference", row.difference);
    rows.push_back(std::move(json));
  }
  Json json = Json::object();
  json.set("equal", verified.report.equal()).set("runners", std::move(runners));
  json.set("differences", std::move(rows))
      .set("dropped", Json::Array(verified.dropped.begin(), verified.dropped.end()))
      .set("seconds", verified.report.seconds);
  return json;
}

std::string to_text(const Verified& verified) {
  Table summary({"runner", "sizes", ">comparisons", ">differences"});
  for (const Summary& s : summarize(verified.report))
    summary.add({s.runner, sizes_text(s.sizes), count_text(s.comparisons), count_text(s.differences)});
  Table failing({"runner", ">size", ">real", "difference"});
  for (const VerifyRow& row : verified.report.rows) {
    if (!row.difference.empty()) failing.add({row.runner, count_text(row.size), count_text(row.real), row.difference});
  }
  std::string text = summary.text();
  if (!failing.empty()) text += "\n" + failing.text();
  return text + fmt::format("  {} s\n", number_text(verified.report.seconds));
}

Json to_json(const SoakReport& report) {
  Json forwards = Json::array();
  for (const auto& [key, count] : report.forwards.by_key) {
    Json json = Json::object();
    json.set("runner", runner_kind_name(key.runner)).set("size", key.size).set("reason", reason_name(key.reason));
    forwards.push_back(std::move(json.set("forwards", count.forwards).set("padding", count.padding)));
  }
  Json json = Json::object();
  json.set("equal", report.num_failures == 0).set("batches", report.batches).set("tokens", report.tokens);
  json.set("cancelled", report.cancelled).set("finished", report.finished).set("failures", report.num_failures);
  json.set("first_failures", Json::Array(report.failures.begin(), report.failures.end()));
  if (report.images.encoded > 0) {
    Json images = Json::object();
    images.set("encoded", report.images.encoded).set("cache_hits", report.images.cache_hits);
    images.set("graph_forwards", report.images.graph_forwards).set("eager_forwards", report.images.eager_forwards);
    json.set("images", std::move(images.set("greatest_difference", report.images.greatest_difference)));
  }
  json.set("ties", report.num_ties).set("first_ties", Json::Array(report.ties.begin(), report.ties.end()));
  json.set("greatest_tie", report.greatest_tie);
  json.set("greatest_difference", report.greatest_difference).set("seconds", report.seconds);
  json.set("resident_bytes", Json::Array{report.resident_early, report.resident_end});
  json.set("available_bytes", Json::Array{report.available_early, report.available_end});
  json.set("forwards", std::move(forwards));
  return json;
}

std::string ties_text(const SoakReport& report) {
  if (report.num_ties == 0) return "";
  return fmt::format(", but in {} of the batches by up to {:.2g}: rounding may have turned a tie between experts there",
                     count_text(report.num_ties), report.greatest_tie);
}

std::string to_text(const SoakReport& report) {
  std::int64_t eager = 0;
  for (const auto& [key, count] : report.forwards.by_key)
    if (key.runner == RunnerKind::kEager) eager += count.forwards;
  std::string text = fmt::format(
      "  {} batches, {} tokens in {} s: {} differences\n  {} through graphs, {} eagerly; {} sequences finished, {} "
      "cancelled\n  unpadded forwards differ by {:.2g} at most{}\n  resident memory {} after half, {} at the end\n",
      count_text(report.batches), count_text(report.tokens), number_text(report.seconds),
      count_text(report.num_failures), count_text(report.batches - eager), count_text(eager),
      count_text(report.finished), count_text(report.cancelled), report.greatest_difference, ties_text(report),
      bytes_text(report.resident_early), bytes_text(report.resident_end));
  if (report.images.encoded > 0)
    text += fmt::format(
        "  {} images encoded, {} found again; the tower ran {} times through graphs, {} eagerly; images alone differ "
        "by "
        "{:.2g} at most\n",
        count_text(report.images.encoded), count_text(report.images.cache_hits),
        count_text(report.images.graph_forwards), count_text(report.images.eager_forwards),
        report.images.greatest_difference);
  for (const std::string& tie : report.ties) text += "  perhaps a tie: " + tie + "\n";
  for (const std::string& failure : report.failures) text += "  " + failure + "\n";
  return text;
}

// Returns the largest accepted difference. For float32 it covers the rounding of sums that are added in another order.
// Narrower types round every value of every layer, so their limit is larger. The state of a delta rule can amplify
// rounding: the rule divides keys and queries by their norms, and subtracts what the state already holds. When the
// embeddings change by a unit in the last place, a row's logits change by up to 2.2e-4 in qwen3-next, and by less than
// 1e-5 in all other models. In soaks, logits differed by up to 4.5e-5 in qwen3-next, and by up to 1.1e-5 in other
// models with such states (tools/rounding_response.py; docs/measurements/correctness.md, "How far rounding carries").
//
// Kernels of 16-bit types also round the inputs of a linear to E4M3 if the linear's weights are in E4M3 and the
// weights' format asks for rounded inputs. E4M3 has four mantissa bits fewer than bfloat16, so one step of E4M3 is 16
// units in bfloat16's last place. An input that differs by one unit is therefore rounded to another E4M3 number in one
// case of 16, and then differs by 16 units. This makes the variance of the differences 16 times as large (256 / 16), so
// the limit is four times as large.
double soak_tolerance(ModelRunner& runner) {
  constexpr double kNarrow = 5e-2;
  const ir::Graph& body = runner.model().graphs.body;
  const auto rounds_inputs = [](const ir::Node& node) {
    return string_attribute(node, "values", "") == "e4m3" && string_attribute(node, "inputs", "plain") != "plain";
  };
  if (body.value(body.outputs[0]).type.dtype != ir::DType::kFloat32)
    return std::ranges::any_of(body.nodes, rounds_inputs) ? 4 * kNarrow : kNarrow;
  const auto is_recurrent = [](const ir::CacheGroup& g) { return g.kind == ir::CacheGroup::Kind::kState; };
  return std::ranges::any_of(body.cache_groups, is_recurrent) ? 3e-4 : 1e-5;
}

// Checks that resident memory hardly grows after the first half of the batches. Most of the memory that later batches
// reuse is allocated by then. Does not check a short soak.
Status check_memory(const SoakReport& report) {
  constexpr std::int64_t kLongEnough = 1000;  // number of batches
  constexpr std::int64_t kNoise = std::int64_t{16} << 20;
  if (report.batches < kLongEnough) return ok_status();
  const std::int64_t grown = report.resident_end - report.resident_early;
  if (grown > kNoise + report.resident_early / 20) {
    return internal_error(fmt::format("resident memory grew from {} after half of the batches to {}",
                                      bytes_text(report.resident_early), bytes_text(report.resident_end)));
  }
  return ok_status();
}

Status run_soak(const VerifyOptions& options) {
  EngineOptions engine = options.engine;
  engine.show_progress = progress_wanted();
  engine.graphs.measure_costs = false;  // measured costs would let equal seeds run different graphs
  const std::unique_ptr<VerifiedRunner> soaked = TRY(VerifiedRunner::create(std::move(engine)));
  if (!soaked->has_graphs()) return no_graphs();
  const SoakReport report = TRY(soak(soaked->runner(), {.batches = options.soak,
                                                        .seed = options.seed,
                                                        .tolerance = soak_tolerance(soaked->runner()),
                                                        .show_progress = progress_wanted()}));
  TRY(write_output(options.json ? to_json(report).dump() + "\n" : to_text(report)));
  if (report.num_failures == 0) return check_memory(report);
  return internal_error(
      fmt::format("{} of {} batches differ, first {}", report.num_failures, report.batches, report.failures.front()));
}

Status check(const Verified& verified) {
  if (!verified.dropped.empty()) {
    return internal_error(
        fmt::format("{} not captured, {}", plural(std::ssize(verified.dropped), "size"), verified.dropped[0]));
  }
  if (verified.report.equal()) return ok_status();
  if (verified.report.rows.empty()) return no_graphs();
  const auto differences = std::count_if(verified.report.rows.begin(), verified.report.rows.end(),
                                         [](const VerifyRow& row) { return !row.difference.empty(); });
  return internal_error(fmt::format("{} of {} comparisons differ", differences, verified.report.rows.size()));
}

Status run_modes(const VerifyOptions& options) {
  Json modes = Json::array();
  Status failed;
  for (const VerifyMode& mode : verify_modes()) {
    const Verified verified = TRY(verify_mode(options.engine, mode).with_context(mode.name));
    if (Status status = check(verified); !status.ok() && failed.ok())
      failed = std::move(status).with_context(mode.name);
    Json json = to_json(verified);
    modes.push_back(std::move(json.set("mode", mode.name)));
    if (!options.json) TRY(write_output(fmt::format("{}\n{}", mode.name, to_text(verified))));
  }
  Json json = Json::object();
  if (options.json) TRY(write_output(json.set("equal", failed.ok()).set("modes", std::move(modes)).dump() + "\n"));
  return failed;
}

}  // namespace

Status run_verify(const VerifyOptions& options) {
  if (options.soak > 0) return run_soak(options);
  if (options.modes) return run_modes(options);
  const Verified verified = TRY(verify_mode(options.engine, {}));
  TRY(write_output(options.json ? to_json(verified).dump() + "\n" : to_text(verified)));
  return check(verified);
}

}  // namespace tessera::cli
