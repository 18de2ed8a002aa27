#include "tessera/load/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "tessera/base/json.h"

namespace tessera {
namespace {

constexpr int kPromptRanges = 4;

bool has_parts(const Load& load) { return !load.requests.empty() && !load.requests.front().parts.empty(); }

// Writes the body as text. Building a JSON tree of thousands of ids would take so long that the times which the client
// measures would be wrong.
std::string request_body(const LoadTarget& target, const LoadRequest& request, std::size_t index,
                         const PromptSource& source, std::span<const RequestRecord> records) {
  return fmt::format(
      R"({{"model":{},"prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,"skip_special_tokens":false,)"
      // With return_token_ids, servers that support it send a chunk for each token, even if the token adds no text.
      R"("stream":true,"return_token_ids":true,)"
      R"("stream_options":{{"include_usage":true,"continuous_usage_stats":true}}}})",
      Json(request.adapter.empty() ? target.model : request.adapter).dump(),
      fmt::join(prompt_ids(request, index, source, records), ","), request.output_tokens);
}

Result<ClientRun> send(const LoadTarget& target, const Load& load, const std::vector<double>& times,
                       const PromptSource& source, const LoadRunOptions& options, bool counts) {
  ClientLoad asked{.send_at_s = times, .body = [&](std::size_t i, std::span<const RequestRecord> records) {
                     return request_body(target, load.requests[i], i, source, records);
                   }};
  std::vector<std::ptrdiff_t> after;
  if (counts) {
    for (const LoadRequest& request : load.requests)
      after.push_back(request.after ? static_cast<std::ptrdiff_t>(*request.after) : -1);
    asked.after = after;
    asked.keep_ids = has_parts(load);
    asked.max_concurrency = options.max_concurrency;
    if (options.on_end) asked.on_end = [&](std::size_t) { options.on_end(); };
  }
  return target.client.run(asked);
}

}  // namespace

Result<LoadTarget> ask_target(LoadClient& client, const std::string& model, std::int64_t vocab_size) {
  const Json models = TRY(client.get("/v1/models"));
  const Json* data = models.find("data");
  const bool any = data != nullptr && data->is_array() && !data->as_array().empty();
  LoadTarget target{.client = client, .model = model, .context = {}, .vocab_size = vocab_size};
  const Json::Array entries = any ? data->as_array() : Json::Array();
  for (const Json& entry : entries) {
    const Json* id = entry.find("id");
    if (id == nullptr || !id->is_string()) continue;
    if (target.model.empty()) target.model = id->as_string();
    const Json* context = entry.find("max_model_len");
    if (id->as_string() == target.model && context != nullptr && context->is_int()) target.context = context->as_int();
  }
  if (target.model.empty()) return not_found("the server names no model: its name has to be given");
  return target;
}

Result<LoadRun> run_load(const LoadTarget& target, Load load, const LoadRunOptions& options) {
  LoadRun run;
  if (target.context) run.clipped = clip_to_context(load, *target.context);
  std::vector<double> times;
  if (options.rate) {
    times = TRY(arrivals_at(load, *options.rate));
  } else {
    for (const LoadRequest& request : load.requests) times.push_back(request.arrival_s);
  }
  // PromptSource::run is even for a warm-up and odd for a run, so no run has the prompts of a warm-up.
  const auto warmups = std::min(static_cast<std::size_t>(options.warmup), load.requests.size());
  const std::vector<double> at_once(warmups, 0.0);
  PromptSource source{.seed = options.seed, .run = 2 * options.number, .vocab_size = target.vocab_size};
  TRY(send(target, load, at_once, source, options, /*counts=*/false));

  source.run = 2 * options.number + 1;
  if (options.on_start) options.on_start(std::ssize(times));
  ClientRun done = TRY(send(target, load, times, source, options, /*counts=*/true));
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (done.records[i].input_tokens == 0) done.records[i].input_tokens = load.requests[i].input_tokens;
  }
  run.result = load_result(done.records);
  if (has_parts(load)) {
    forget_unreported_outputs(load, done.records);
    run.known_tokens = 0;
    for (std::size_t i = 0; i < times.size(); ++i)
      if (done.records[i].failure.empty()) *run.known_tokens += load.requests[i].known_tokens;
    run.latencies = prompt_latencies(load, done.records, kPromptRanges);
  }
  run.cpu_share = done.cpu_share;
  return run;
}

}  // namespace tessera
