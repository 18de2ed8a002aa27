#include "tessera/runner/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tessera/cli/commands.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session.h"
#include "tessera/cli/table.h"
#include "tessera/ops/backend.h"

namespace tessera::cli {
namespace {

// Of the KV cache: what verify()'s batches have at most. The engine's own cache would be needlessly large.
constexpr std::int64_t kCachedTokensPerRequest = 64;

struct Verified {
  VerifyReport report;
  std::vector<std::string> dropped;  // sizes that could not be captured, and why
};

Result<Verified> verify_model(EngineOptions options) {
  options.show_progress = progress_wanted();
  const std::unique_ptr<Device> device = TRY(open_device(options.device));
  EnginePlan plan = TRY(plan_engine(options, device->properties()));
  RunnerOptions& runner_options = plan.runner;
  const std::int64_t tokens = runner_options.max_requests * kCachedTokensPerRequest + runner_options.max_tokens;
  const std::int64_t pages = tokens / runner_options.page_size + runner_options.max_requests + 2;
  runner_options.num_pages = std::min(runner_options.num_pages, pages);

  Verified verified;
  const WeightSource source = TRY(weight_source(options));
  Weights weights = TRY(Weights::load(plan.graphs.weights, source, *device, options.show_progress));
  const std::unique_ptr<ModelRunner> runner =
      TRY(ModelRunner::create(std::move(plan.graphs), std::move(weights), *device, std::move(runner_options)));
  TRY(runner->capture());
  verified.report = TRY(verify(*runner, options.show_progress));
  for (const GraphRunner* graphs : {&runner->prefill(), &runner->decode()}) {
    for (const auto& [size, status] : graphs->report().dropped)
      verified.dropped.push_back(fmt::format("{} size {}: {}", graphs->name(), size, status.message()));
  }
  return verified;
}

// What was compared of one runner.
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

}  // namespace

Status run_verify(const VerifyOptions& options) {
  const Verified verified = TRY(verify_model(options.engine));
  TRY(write_output(options.json ? to_json(verified).dump() + "\n" : to_text(verified)));
  if (!verified.dropped.empty()) {
    return internal_error(
        fmt::format("{} not captured, {}", plural(std::ssize(verified.dropped), "size"), verified.dropped[0]));
  }
  if (verified.report.equal()) return ok_status();
  if (verified.report.rows.empty()) return failed_precondition("there are no graphs to verify");
  const auto differences = std::count_if(verified.report.rows.begin(), verified.report.rows.end(),
                                         [](const VerifyRow& row) { return !row.difference.empty(); });
  return internal_error(fmt::format("{} of {} comparisons differ", differences, verified.report.rows.size()));
}

}  // namespace tessera::cli
