#include "tessera/server/metrics/metrics.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tessera/server/metrics/graph_metrics.h"
#include "tessera/server/metrics/metric_families.h"

namespace tessera {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Families = MetricFamilies;
using Sample = MetricSample;
using Clock = std::chrono::steady_clock;

// A scrape updates the throughput only if this many seconds have passed since the last update. In a shorter time the
// engines run only a few steps, so the measured throughput would be noise.
constexpr double kShortestSpan = 0.1;

// The bucket limits of SGLang's or vLLM's own metrics, so that queries of their dashboards give comparable values.
struct StyleBuckets {
  Buckets first_token;
  Buckets next_token;
  Buckets request;
  Buckets tokens;
  Buckets queue;
  Buckets stage;  // for the stages prefill and decode
};

// Returns SGLang's buckets for the stages of a request. They have 30 limits: 1 ms, 1.62 ms, 1.62² ms and so on.
Buckets stage_buckets() {
  Buckets buckets;
  for (double limit = 0.001; buckets.size() < 30; limit *= 1.62) buckets.push_back(limit);
  return buckets;
}

StyleBuckets buckets_of(MetricsStyle style) {
  if (style == MetricsStyle::kSglang) {
    return {
        .first_token = {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
        .next_token = {0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06,
                       0.08,  0.1,   0.2,   0.4,   0.6,  0.8,   1,    2,     4,    6,     8},
        .request = {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400},
        .tokens = {100,   300,   500,   700,   1000,  1500,   2000,   3000,   4000,   5000,
                   6000,  7000,  8000,  9000,  10000, 12000,  15000,  20000,  22000,  25000,
                   30000, 35000, 40000, 66000, 99000, 132000, 300000, 600000, 900000, 1100000},
        .queue = {0,   0.001, 0.005, 0.01, 0.05, 0.1,  0.2,  0.5,  1,    2,    3,    4,   5,   10,
                  15,  20,    30,    40,   50,   60,   70,   80,   90,   100,  200,  300, 400, 500,
                  600, 700,   800,   900,  1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000},
        .stage = stage_buckets()};
  }
  const Buckets request = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                           30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
  return {.first_token = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560},
          .next_token = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
          .request = request,
          .tokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000,
                     1000000},
          .queue = request,
          .stage = request};
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Returns vLLM's name for the finish reason.
const char* finished_reason(FinishReason finish) {
  switch (finish) {
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled:
    case FinishReason::kTimeout: return "abort";
    case FinishReason::kError: return "error";
    default: return "stop";
  }
}

}  // namespace

Result<MetricsStyle> metrics_style(std::string_view name) {
  if (name == "sglang") return MetricsStyle::kSglang;
  if (name == "vllm") return MetricsStyle::kVllm;
  return invalid_argument(fmt::format("unknown metrics style '{}'; accepted: sglang, vllm", name));
}

struct ServerMetrics::Impl {
  Impl(MetricsStyle its_style, std::string model_name, const StyleBuckets& buckets)
      : style(its_style),
        labels{{"model_name", std::move(model_name)}},
        first_token(buckets.first_token),
        next_token(buckets.next_token),
        request(buckets.request),
        prompt_tokens(buckets.tokens),
        output_tokens(buckets.tokens),
        most_output_tokens(buckets.tokens),
        queue(buckets.queue),
        prefill(buckets.stage),
        decode(buckets.stage) {
    if (style == MetricsStyle::kVllm) labels.emplace_back("engine", "0");
  }

  void add_sglang(Families& families, const EngineStats& stats) const;
  void add_vllm(Families& families, const EngineStats& stats) const;
  // Adds a gauge of value 1. Two of its labels say how many tokens a page has and how many pages there are. `names`
  // gives the names of these two labels.
  void add_cache_config(Families& families, const std::string& prefix, std::pair<const char*, const char*> names,
                        const EngineStats& stats) const;
  void add_common(Families& families, const std::string& prefix, const EngineStats& stats) const;
  void add_own(Families& families, const EngineStats& stats) const;
  static void add_cache(Families& families, const EngineStats& stats);
  static void add_images(Families& families, const ImageStats& images);
  static void add_memory(Families& families, const MemoryBudget& memory);
  static void add_replicas(Families& families, std::span<const EngineStats> each);
  void update_throughput(const EngineStats& stats, Clock::time_point now);

  MetricsStyle style;
  MetricLabels labels;
  Histogram first_token;
  Histogram next_token;
  Histogram request;
  Histogram prompt_tokens;
  Histogram output_tokens;
  Histogram most_output_tokens;  // tokens of the longest generation of an HTTP request
  Histogram queue;
  Histogram prefill;
  Histogram decode;
  LatencyWindow first_token_window;
  LatencyWindow next_token_window;
  LatencyWindow request_window;
  std::map<const char*, std::int64_t, std::less<std::string_view>> ends{
      {"stop", 0}, {"length", 0}, {"abort", 0}, {"error", 0}};
  std::map<std::pair<std::string, int>, std::int64_t, std::less<>> answers;  // counts by route and status

  double throughput = 0;  // tokens/s
  Clock::time_point counted_at = Clock::now();
  std::int64_t counted_tokens = 0;
};

ServerMetrics::ServerMetrics(MetricsStyle style, std::string model_name)
    : impl_(std::make_unique<Impl>(style, std::move(model_name), buckets_of(style))) {}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::answered(std::string_view route, int status) { ++impl_->answers[{std::string(route), status}]; }
void ServerMetrics::first_token(double seconds) {
  impl_->first_token.Observe(seconds);
  impl_->first_token_window.add(seconds);
}
void ServerMetrics::next_token(double seconds) {
  impl_->next_token.Observe(seconds);
  impl_->next_token_window.add(seconds);
}

void ServerMetrics::ended(const End& end) {
  impl_->request.Observe(end.seconds);
  impl_->request_window.add(end.seconds);
  impl_->prompt_tokens.Observe(static_cast<double>(end.prompt_tokens));
  impl_->output_tokens.Observe(static_cast<double>(end.output_tokens));
  ++impl_->ends[finished_reason(end.finish)];
  if (end.first_token_s == 0) return;
  impl_->queue.Observe(end.queue_s);
  impl_->prefill.Observe(end.first_token_s - end.queue_s);
  impl_->decode.Observe(end.engine_s - end.first_token_s);
}

void ServerMetrics::cancelled() { ++impl_->ends[finished_reason(FinishReason::kCancelled)]; }

void ServerMetrics::call_ended(std::int64_t most_output_tokens) {
  impl_->most_output_tokens.Observe(static_cast<double>(most_output_tokens));
}

ServerLatencies ServerMetrics::latencies() const {
  return {.first_token = impl_->first_token_window.percentiles(),
          .next_token = impl_->next_token_window.percentiles(),
          .request = impl_->request_window.percentiles()};
}

std::string ServerMetrics::scrape(std::span<const EngineStats> engines, const MemoryBudget& memory,
                                  Clock::time_point now) {
  const EngineStats stats = sum_of(engines);
  impl_->update_throughput(stats, now);
  Families families;
  if (impl_->style == MetricsStyle::kSglang) {
    impl_->add_sglang(families, stats);
  } else {
    impl_->add_vllm(families, stats);
  }
  impl_->add_own(families, stats);
  Impl::add_memory(families, memory);
  if (engines.size() > 1) Impl::add_replicas(families, engines);
  return families.text();
}

void ServerMetrics::Impl::update_throughput(const EngineStats& stats, Clock::time_point now) {
  const double span = std::chrono::duration<double>(now - counted_at).count();
  if (span < kShortestSpan) return;
  throughput = static_cast<double>(stats.output_tokens - counted_tokens) / span;
  counted_at = now;
  counted_tokens = stats.output_tokens;
}

// Adds the metrics whose names in SGLang and vLLM differ only in the prefix.
void ServerMetrics::Impl::add_common(Families& families, const std::string& prefix, const EngineStats& stats) const {
  families.counter(prefix + "prompt_tokens_total", "Prompt tokens of admitted requests.", labels, stats.prompt_tokens);
  families.counter(prefix + "generation_tokens_total", "Tokens generated.", labels, stats.output_tokens);
  families.histogram(prefix + "time_to_first_token_seconds", "Seconds from the request to its first token.", labels,
                     first_token);
  families.histogram(prefix + "inter_token_latency_seconds", "Seconds from one token to the next.", labels, next_token);
  families.histogram(prefix + "e2e_request_latency_seconds", "Seconds from the request to its end.", labels, request);
}

void ServerMetrics::Impl::add_cache_config(Families& families, const std::string& prefix,
                                           std::pair<const char*, const char*> names, const EngineStats& stats) const {
  // Each cache group has its own pages. The group that has the fewest pages limits how many tokens fit.
  std::int64_t pages = stats.cache_groups[0].usable_pages;
  for (std::size_t g = 1; g < stats.num_cache_groups; ++g) pages = std::min(pages, stats.cache_groups[g].usable_pages);
  MetricLabels with_sizes = labels;
  with_sizes.emplace_back(names.first, std::to_string(stats.page_size));
  with_sizes.emplace_back(names.second, std::to_string(pages));
  families.gauge(prefix + "cache_config_info",
                 "Always 1; the labels have the tokens of a page of the KV cache, and the number of its pages.",
                 with_sizes, 1);
}

void ServerMetrics::Impl::add_sglang(Families& families, const EngineStats& stats) const {
  families.gauge("sglang:num_running_reqs", "Requests in the present batch.", labels,
                 static_cast<double>(stats.running));
  families.gauge("sglang:num_queue_reqs", "Requests that wait for room.", labels, static_cast<double>(stats.queued));
  families.gauge("sglang:token_usage", "Share of the KV cache that running requests hold.", labels,
                 stats.fullest_group().usage());
  families.gauge("sglang:num_used_tokens", "Tokens of KV cache that running requests hold, in whole pages.", labels,
                 static_cast<double>(stats.fullest_group().used_pages * stats.page_size));
  families.gauge("sglang:max_total_num_tokens", "Tokens that the KV cache has room for.", labels,
                 static_cast<double>(stats.fullest_group().usable_pages * stats.page_size));
  add_cache_config(families, "sglang:", {"page_size", "num_pages"}, stats);
  families.gauge("sglang:cache_hit_rate", "Share of prompt tokens found in the prefix cache, since the start.", labels,
                 ratio(stats.cached_tokens, stats.prompt_tokens));
  families.gauge("sglang:gen_throughput", "Tokens generated per second since the scrape before.", labels, throughput);
  families.counter("sglang:cached_tokens_total", "Prompt tokens found in the prefix cache.", labels,
                   stats.cached_tokens);
  std::int64_t all = 0;
  for (const auto& [reason, count] : ends) all += count;
  families.counter("sglang:num_requests_total", "Requests that ended.", labels, all);
  families.counter("sglang:num_aborted_requests_total", "Requests cancelled or out of time.", labels, ends.at("abort"));
  families.gauge("sglang:spec_accept_length", "Tokens that a forward with drafts gives on average.", labels,
                 stats.drafts.mean_length());
  families.counter("sglang:num_retracted_requests_total", "Requests put back for want of pages.", labels,
                   stats.preemptions);
  families.histogram("sglang:prompt_tokens_histogram", "Prompt tokens of a request.", labels, prompt_tokens);
  families.histogram("sglang:generation_tokens_histogram", "Tokens generated for a request.", labels, output_tokens);
  families.histogram("sglang:queue_time_seconds", "Seconds from the request to its admission.", labels, queue);
  const auto of_stage = [&](const char* stage, const Histogram& histogram) {
    MetricLabels with_stage = labels;
    with_stage.emplace_back("stage", stage);
    return Families::LabelledHistogram{std::move(with_stage), &histogram};
  };
  families.histograms("sglang:per_stage_req_latency_seconds",
                      "Seconds from admission to the first token, and from the first token to the end.",
                      {of_stage("prefill_forward", prefill), of_stage("decode_forward", decode)});
  add_common(families, "sglang:", stats);
}

void ServerMetrics::Impl::add_vllm(Families& families, const EngineStats& stats) const {
  families.gauge("vllm:num_requests_running", "Requests in the present batch.", labels,
                 static_cast<double>(stats.running));
  families.gauge("vllm:num_requests_waiting", "Requests that wait for room.", labels,
                 static_cast<double>(stats.queued));
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {  // the new name and the old one
    families.gauge(name, "Share of the KV cache that running requests hold; 1 is all.", labels,
                   stats.fullest_group().usage());
  }
  add_cache_config(families, "vllm:", {"block_size", "num_gpu_blocks"}, stats);
  families.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.", labels,
                   stats.prompt_tokens);
  families.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", labels,
                   stats.cached_tokens);
  families.counter("vllm:spec_decode_num_drafts_total", "Forwards of a request that had drafts.", labels,
                   stats.drafts.steps);
  families.counter("vllm:spec_decode_num_draft_tokens_total", "Drafts that were checked.", labels,
                   stats.drafts.drafted);
  families.counter("vllm:spec_decode_num_accepted_tokens_total", "Drafts that were output.", labels, stats.drafts.kept);
  std::vector<Sample> by_position;
  for (std::size_t at = 0; at < stats.drafts.positions(); ++at) {
    MetricLabels with_position = labels;
    with_position.emplace_back("position", std::to_string(at));
    by_position.push_back({std::move(with_position), static_cast<double>(stats.drafts.kept_at[at])});
  }
  if (!by_position.empty())
    families.counters("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                      "Drafts that were output, by position behind the last token.", by_position);
  families.counter("vllm:num_preemptions_total", "Requests put back for want of pages.", labels, stats.preemptions);
  std::vector<Sample> by_reason;
  for (const auto& [reason, count] : ends) {
    MetricLabels with_reason = labels;
    with_reason.emplace_back("finished_reason", reason);
    by_reason.push_back({std::move(with_reason), static_cast<double>(count)});
  }
  families.counters("vllm:request_success_total", "Requests that ended, by why.", by_reason);
  families.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", labels, prompt_tokens);
  families.histogram("vllm:request_generation_tokens", "Tokens generated for a request.", labels, output_tokens);
  families.histogram("vllm:request_max_num_generation_tokens", "Tokens of a request's longest text.", labels,
                     most_output_tokens);
  families.histogram("vllm:request_queue_time_seconds", "Seconds from the request to its admission.", labels, queue);
  families.histogram("vllm:request_prefill_time_seconds", "Seconds from admission to the first token.", labels,
                     prefill);
  families.histogram("vllm:request_decode_time_seconds", "Seconds from the first token to the end.", labels, decode);
  families.histogram("vllm:time_per_output_token_seconds", "Seconds from one token to the next.", labels, next_token);
  add_common(families, "vllm:", stats);
}

// Adds the metrics of the KV cache's pages, as of the last step.
void ServerMetrics::Impl::add_cache(Families& families, const EngineStats& stats) {
  std::vector<Sample> samples;
  for (std::size_t g = 0; g < stats.num_cache_groups; ++g) {
    const CacheGroupStats& group = stats.cache_groups[g];
    const std::int64_t free = group.usable_pages - group.used_pages - group.cached_pages;
    for (const auto& [state, pages] :
         {std::pair("used", group.used_pages), std::pair("cached", group.cached_pages), std::pair("free", free)}) {
      samples.push_back(
          {{{"group", std::to_string(g)}, {"state", state}}, static_cast<double>(pages * group.page_bytes)});
    }
  }
  families.gauges("tessera:kv_cache_bytes", "Memory of the KV cache: used by requests, cached prefixes, and free.",
                  samples);
  families.gauge("tessera:retained_texts", "Texts that the prefix cache evicts after others.", {},
                 static_cast<double>(stats.retention.texts));
  families.counter("tessera:retained_evictions_total", "Pages and checkpoints of retained texts that were evicted.", {},
                   stats.retention.evicted);
}

void ServerMetrics::Impl::add_images(Families& families, const ImageStats& images) {
  families.counter("tessera:images_total", "Images of admitted requests.", {}, images.images);
  families.counter("tessera:image_tokens_total", "Tokens that images of admitted requests take in prompts.", {},
                   images.image_tokens);
  families.counter("tessera:image_cache_hits_total", "Images whose embeddings were kept from before.", {},
                   images.cache_hits);
  families.counter("tessera:tower_images_total", "Images that the vision tower computed.", {}, images.encoded);
  families.counters("tessera:tower_seconds_total", "Host seconds spent on the vision tower.",
                    {{{}, images.tower_seconds}});
  families.gauge("tessera:image_cache_bytes", "Bytes of the image embeddings that are kept.", {},
                 static_cast<double>(images.cached_bytes));
}

void ServerMetrics::Impl::add_replicas(Families& families, std::span<const EngineStats> each) {
  const auto of_each = [&](auto&& number) {
    std::vector<Sample> samples;
    for (std::size_t r = 0; r < each.size(); ++r)
      samples.push_back({{{"replica", std::to_string(r)}}, static_cast<double>(number(each[r]))});
    return samples;
  };
  families.gauges("tessera:replica_running_requests", "Requests that a replica runs.",
                  of_each([](const EngineStats& stats) { return stats.running; }));
  families.gauges("tessera:replica_queued_requests", "Requests that wait in a replica.",
                  of_each([](const EngineStats& stats) { return stats.queued; }));
  families.counters("tessera:replica_prompt_tokens_total", "Prompt tokens that a replica took.",
                    of_each([](const EngineStats& stats) { return stats.prompt_tokens; }));
  families.counters("tessera:replica_cached_tokens_total", "Prompt tokens that a replica found in its prefix cache.",
                    of_each([](const EngineStats& stats) { return stats.cached_tokens; }));
}

void ServerMetrics::Impl::add_memory(Families& families, const MemoryBudget& memory) {
  families.gauge("tessera:request_memory_bytes", "Memory that requests hold: bodies, images, results.", {},
                 static_cast<double>(memory.used()));
  families.gauge("tessera:request_memory_limit_bytes", "Memory that all requests together may hold.", {},
                 static_cast<double>(memory.limit()));
  families.counters("tessera:request_memory_refused_total",
                    "Charges of memory refused because other requests hold it (503), or because one request would "
                    "take more than all may hold (413).",
                    {{{{"status", "503"}}, static_cast<double>(memory.refused_for_now())},
                     {{{"status", "413"}}, static_cast<double>(memory.refused_for_good())}});
}

void ServerMetrics::Impl::add_own(Families& families, const EngineStats& stats) const {
  add_graph_metrics(families, stats);
  families.counter("tessera:steps_total", "Steps of the engine.", {}, stats.steps);
  families.counter("tessera:draft_steps_total", "Forwards of a request that had drafts.", {}, stats.drafts.steps);
  families.counter("tessera:draft_tokens_total", "Drafts that were checked.", {}, stats.drafts.drafted);
  families.counter("tessera:kept_draft_tokens_total", "Drafts that were output.", {}, stats.drafts.kept);
  families.counter("tessera:preemptions_total", "Requests put back for want of pages.", {}, stats.preemptions);
  families.gauge("tessera:cached_pages", "Pages that the prefix cache alone holds.", {},
                 static_cast<double>(stats.fullest_group().cached_pages));
  add_cache(families, stats);
  add_images(families, stats.images);
  std::vector<Sample> http;
  for (const auto& [key, count] : answers)
    http.push_back({{{"route", key.first}, {"status", std::to_string(key.second)}}, static_cast<double>(count)});
  families.counters("tessera:http_requests_total", "HTTP requests answered.", http);
}

}  // namespace tessera
