#include "tessera/server/metrics.h"

#include <fmt/format.h>
#include <prometheus/client_metric.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::vector<ClientMetric::Label>;
using Clock = std::chrono::steady_clock;

// Scrapes closer together see the same throughput: of so few steps it would be noise.
constexpr double kShortestSpan = 0.1;

// The buckets of SGLang's and vLLM's own metrics, so that their dashboards' queries and ours can be laid side by side.
struct StyleBuckets {
  Buckets first_token;
  Buckets next_token;
  Buckets request;
  Buckets tokens;
};

StyleBuckets buckets_of(MetricsStyle style) {
  if (style == MetricsStyle::kSglang) {
    return {
        .first_token = {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
        .next_token = {0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06,
                       0.08,  0.1,   0.2,   0.4,   0.6,  0.8,   1,    2,     4,    6,     8},
        .request = {0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400},
        .tokens = {100,   300,   500,   700,   1000,  1500,   2000,   3000,   4000,   5000,
                   6000,  7000,  8000,  9000,  10000, 12000,  15000,  20000,  22000,  25000,
                   30000, 35000, 40000, 66000, 99000, 132000, 300000, 600000, 900000, 1100000}};
  }
  return {.first_token = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560},
          .next_token = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
          .request = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
          .tokens = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000,
                     1000000}};
}

ClientMetric value(MetricType type, Labels labels, double number) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = number;
  } else {
    metric.gauge.value = number;
  }
  return metric;
}

// A scrape being written: families in the order they are added.
class Families {
 public:
  void add(MetricType type, std::string name, const char* help, std::vector<ClientMetric> metrics) {
    families_.push_back({.name = std::move(name), .help = help, .type = type, .metric = std::move(metrics)});
  }
  void add(MetricType type, std::string name, const char* help, Labels labels, double number) {
    add(type, std::move(name), help, {value(type, std::move(labels), number)});
  }
  void add(std::string name, const char* help, Labels labels, const Histogram& histogram) {
    ClientMetric metric = histogram.Collect();
    metric.label = std::move(labels);
    add(MetricType::Histogram, std::move(name), help, {std::move(metric)});
  }
  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  std::vector<MetricFamily> families_;
};

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// vLLM's words.
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
  return invalid_argument(fmt::format("there is no metrics style '{}': 'sglang' and 'vllm' are", name));
}

struct ServerMetrics::Impl {
  Impl(MetricsStyle its_style, std::string model_name, const StyleBuckets& buckets)
      : style(its_style),
        labels{{"model_name", std::move(model_name)}},
        first_token(buckets.first_token),
        next_token(buckets.next_token),
        request(buckets.request),
        prompt_tokens(buckets.tokens),
        output_tokens(buckets.tokens) {
    if (style == MetricsStyle::kVllm) labels.push_back({"engine", "0"});
  }

  void add_sglang(Families& families, const EngineStats& stats) const;
  void add_vllm(Families& families, const EngineStats& stats) const;
  void add_common(Families& families, const std::string& prefix, const EngineStats& stats) const;
  void add_own(Families& families, const EngineStats& stats, const MemoryLedger& memory) const;
  void update_throughput(const EngineStats& stats, Clock::time_point now);

  MetricsStyle style;
  Labels labels;
  Histogram first_token;
  Histogram next_token;
  Histogram request;
  Histogram prompt_tokens;
  Histogram output_tokens;
  LatencyWindow first_token_window;
  LatencyWindow next_token_window;
  LatencyWindow request_window;
  std::map<const char*, std::int64_t, std::less<std::string_view>> ends{
      {"stop", 0}, {"length", 0}, {"abort", 0}, {"error", 0}};
  std::map<std::pair<std::string, int>, std::int64_t, std::less<>> answers;  // by route and status

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
}

ServerLatencies ServerMetrics::latencies() const {
  return {.first_token = impl_->first_token_window.percentiles(),
          .next_token = impl_->next_token_window.percentiles(),
          .request = impl_->request_window.percentiles()};
}

std::string ServerMetrics::scrape(const EngineStats& stats, const MemoryLedger& memory, Clock::time_point now) {
  impl_->update_throughput(stats, now);
  Families families;
  if (impl_->style == MetricsStyle::kSglang) {
    impl_->add_sglang(families, stats);
  } else {
    impl_->add_vllm(families, stats);
  }
  impl_->add_own(families, stats, memory);
  return families.text();
}

void ServerMetrics::Impl::update_throughput(const EngineStats& stats, Clock::time_point now) {
  const double span = std::chrono::duration<double>(now - counted_at).count();
  if (span < kShortestSpan) return;
  throughput = static_cast<double>(stats.output_tokens - counted_tokens) / span;
  counted_at = now;
  counted_tokens = stats.output_tokens;
}

// What both call the same.
void ServerMetrics::Impl::add_common(Families& families, const std::string& prefix, const EngineStats& stats) const {
  const auto counter = [&](const char* name, const char* help, std::int64_t number) {
    families.add(MetricType::Counter, prefix + name, help, labels, static_cast<double>(number));
  };
  counter("prompt_tokens_total", "Prompt tokens of admitted requests.", stats.prompt_tokens);
  counter("generation_tokens_total", "Tokens generated.", stats.output_tokens);
  families.add(prefix + "time_to_first_token_seconds", "From the request to its first token.", labels, first_token);
  families.add(prefix + "inter_token_latency_seconds", "From one token to the next.", labels, next_token);
  families.add(prefix + "e2e_request_latency_seconds", "From the request to its end.", labels, request);
}

void ServerMetrics::Impl::add_sglang(Families& families, const EngineStats& stats) const {
  const auto gauge = [&](const char* name, const char* help, double number) {
    families.add(MetricType::Gauge, name, help, labels, number);
  };
  const auto counter = [&](const char* name, const char* help, std::int64_t number) {
    families.add(MetricType::Counter, name, help, labels, static_cast<double>(number));
  };
  gauge("sglang:num_running_reqs", "Requests in the present batch.", static_cast<double>(stats.running));
  gauge("sglang:num_queue_reqs", "Requests that wait for room.", static_cast<double>(stats.queued));
  gauge("sglang:token_usage", "Share of the KV cache that running requests hold.",
        ratio(stats.used_pages, stats.usable_pages));
  gauge("sglang:num_used_tokens", "Tokens of KV cache that running requests hold, in whole pages.",
        static_cast<double>(stats.used_pages * stats.page_size));
  gauge("sglang:max_total_num_tokens", "Tokens that the KV cache has room for.",
        static_cast<double>(stats.usable_pages * stats.page_size));
  gauge("sglang:cache_hit_rate", "Share of prompt tokens found in the prefix cache, since the start.",
        ratio(stats.cached_tokens, stats.prompt_tokens));
  gauge("sglang:gen_throughput", "Tokens generated per second since the scrape before.", throughput);
  counter("sglang:cached_tokens_total", "Prompt tokens found in the prefix cache.", stats.cached_tokens);
  std::int64_t all = 0;
  for (const auto& [reason, count] : ends) all += count;
  counter("sglang:num_requests_total", "Requests that ended.", all);
  counter("sglang:num_aborted_requests_total", "Requests cancelled or out of time.", ends.at("abort"));
  counter("sglang:num_retracted_requests_total", "Requests put back for want of pages.", stats.preemptions);
  families.add("sglang:prompt_tokens_histogram", "Prompt tokens of a request.", labels, prompt_tokens);
  families.add("sglang:generation_tokens_histogram", "Tokens generated for a request.", labels, output_tokens);
  add_common(families, "sglang:", stats);
}

void ServerMetrics::Impl::add_vllm(Families& families, const EngineStats& stats) const {
  const auto gauge = [&](const char* name, const char* help, double number) {
    families.add(MetricType::Gauge, name, help, labels, number);
  };
  const auto counter = [&](const char* name, const char* help, std::int64_t number) {
    families.add(MetricType::Counter, name, help, labels, static_cast<double>(number));
  };
  gauge("vllm:num_requests_running", "Requests in the present batch.", static_cast<double>(stats.running));
  gauge("vllm:num_requests_waiting", "Requests that wait for room.", static_cast<double>(stats.queued));
  gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that running requests hold; 1 is all.",
        ratio(stats.used_pages, stats.usable_pages));
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.", stats.prompt_tokens);
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.cached_tokens);
  counter("vllm:num_preemptions_total", "Requests put back for want of pages.", stats.preemptions);
  std::vector<ClientMetric> by_reason;
  for (const auto& [reason, count] : ends) {
    Labels with_reason = labels;
    with_reason.push_back({"finished_reason", reason});
    by_reason.push_back(value(MetricType::Counter, std::move(with_reason), static_cast<double>(count)));
  }
  families.add(MetricType::Counter, "vllm:request_success_total", "Requests that ended, by why.", std::move(by_reason));
  families.add("vllm:request_prompt_tokens", "Prompt tokens of a request.", labels, prompt_tokens);
  families.add("vllm:request_generation_tokens", "Tokens generated for a request.", labels, output_tokens);
  families.add("vllm:time_per_output_token_seconds", "From one token to the next.", labels, next_token);
  add_common(families, "vllm:", stats);
}

void ServerMetrics::Impl::add_own(Families& families, const EngineStats& stats, const MemoryLedger& memory) const {
  const auto number = [](MetricType type, Labels own, std::int64_t count) {
    return value(type, std::move(own), static_cast<double>(count));
  };
  const ForwardCounters& forwards = stats.forwards;

  std::vector<ClientMetric> replays;
  for (const auto& [key, count] : forwards.by_bucket) {
    if (key.first == RunnerKind::kEager) continue;
    replays.push_back(
        number(MetricType::Counter,
               {{"runner", std::string(runner_kind_name(key.first))}, {"bucket", std::to_string(key.second)}}, count));
  }
  families.add(MetricType::Counter, "tessera:graph_replays_total",
               "Forwards that replayed a captured graph, by its size.", std::move(replays));

  std::vector<ClientMetric> reasons;
  for (int i = 0; i < kNumReasons; ++i) {
    reasons.push_back(number(MetricType::Counter, {{"reason", std::string(reason_name(static_cast<Reason>(i)))}},
                             forwards.by_reason[static_cast<std::size_t>(i)]));
  }
  families.add(MetricType::Counter, "tessera:forwards_total", "Forwards, by why they ran as they did.",
               std::move(reasons));

  const auto counter = [&](const char* name, const char* help, std::int64_t count) {
    families.add(MetricType::Counter, name, help, Labels{}, static_cast<double>(count));
  };
  counter("tessera:forward_tokens_total", "Tokens of all forwards.", forwards.tokens);
  counter("tessera:padded_tokens_total", "Rows computed for nothing, to fill a captured size.", forwards.padded_tokens);
  counter("tessera:steps_total", "Steps of the engine.", stats.steps);
  counter("tessera:preemptions_total", "Requests put back for want of pages.", stats.preemptions);
  families.add(MetricType::Gauge, "tessera:cached_pages", "Pages that the prefix cache alone holds.", Labels{},
               static_cast<double>(stats.cached_pages));

  const std::array<std::pair<const char*, std::int64_t>, 6> kinds = {{{"weights", memory.weights},
                                                                      {"kv_cache", memory.kv_cache},
                                                                      {"arena", memory.arena},
                                                                      {"workspace", memory.workspace},
                                                                      {"static_inputs", memory.static_inputs},
                                                                      {"graph_objects", memory.graph_objects}}};
  std::vector<ClientMetric> bytes;
  for (const auto& [kind, size] : kinds) bytes.push_back(number(MetricType::Gauge, {{"kind", kind}}, size));
  families.add(MetricType::Gauge, "tessera:memory_bytes", "Device memory, by what takes it.", std::move(bytes));

  std::vector<ClientMetric> http;
  for (const auto& [key, count] : answers) {
    http.push_back(number(MetricType::Counter, {{"route", key.first}, {"status", std::to_string(key.second)}}, count));
  }
  families.add(MetricType::Counter, "tessera:http_requests_total", "HTTP requests answered.", std::move(http));
}

}  // namespace tessera
