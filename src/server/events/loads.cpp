#include "tessera/server/events/loads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/metrics/metric_families.h"
#include "tessera/server/metrics/metrics.h"

namespace tessera {
namespace {

// The throughput is measured over at least this time, however often a client asks for it.
constexpr std::chrono::seconds kLeastSpan{1};

constexpr std::string_view kSections[] = {"core", "memory", "spec", "lora", "disagg", "queues", "all"};

// Returns the bytes in units of 10⁹, rounded to a thousand bytes.
double gigabytes(std::int64_t bytes) { return std::round(static_cast<double>(bytes) * 1e-3) / 1e6; }

double hit_rate(const EngineStats& stats) {
  return stats.prompt_tokens > 0 ? static_cast<double>(stats.cached_tokens) / static_cast<double>(stats.prompt_tokens)
                                 : 0;
}

ApiError wrong_parameter(const std::string& name, const std::string& value, std::string_view accepted) {
  return invalid_field(name, fmt::format("query: \"{}\" is \"{}\"; accepted: {}", name, clip_text(value), accepted));
}

// Returns the sections that the query asks for. An empty list means all sections.
ApiResult<std::vector<std::string>> read_sections(std::string_view query) {
  std::vector<std::string> sections;
  const std::string list = query_value(query, "include").value_or("all");
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string name = list.substr(begin, end - begin);
    begin = end + 1;
    while (name.starts_with(' ')) name.erase(0, 1);
    while (name.ends_with(' ')) name.pop_back();
    if (std::ranges::find(kSections, name) == std::end(kSections))
      return wrong_parameter("include", name, fmt::format("{}", fmt::join(kSections, ", ")));
    if (name == "all") return std::vector<std::string>();
    sections.push_back(std::move(name));
  }
  return sections;
}

ApiResult<std::optional<std::size_t>> read_rank(std::string_view query, std::size_t count) {
  const std::optional<std::string> text = query_value(query, "dp_rank");
  if (!text) return std::optional<std::size_t>();
  std::size_t rank = 0;
  const char* const end = text->data() + text->size();
  const std::from_chars_result read = std::from_chars(text->data(), end, rank);
  if (read.ec != std::errc() || read.ptr != end || rank >= count)
    return wrong_parameter("dp_rank", *text, fmt::format("0 to {}", count - 1));
  return std::optional(rank);
}

}  // namespace

LoadNumbers load_numbers(const EngineStats& stats) {
  const CacheGroupStats& cache = stats.fullest_group();
  const auto uncached = std::round(static_cast<double>(stats.queued_tokens) * (1 - hit_rate(stats)));
  const std::int64_t used = cache.used_pages * stats.page_size;
  return {.running = stats.running,
          .waiting = stats.queued,
          .waiting_uncached_tokens = static_cast<std::int64_t>(uncached),
          .used_tokens = used,
          .total_tokens = used + stats.queued_tokens,
          .capacity = cache.usable_pages * stats.page_size};
}

// A number or text that reports part of an engine's load.
struct LoadReport::Field {
  std::string_view section;  // the name of the JSON object that has the field; "": the engine's object
  std::string_view prefix;   // the section's prefix in the names of metrics
  std::string_view name;
  double number = 0;
  bool whole = true;           // the number is an integer
  std::string_view text = {};  // if not empty, the value is this text, and no metric reports the field
};

void LoadReport::count(std::span<const EngineStats> engines, Clock::time_point now) {
  if (counted_.empty()) {
    for (const EngineStats& stats : engines) counted_.push_back({.at = now, .tokens = stats.output_tokens});
  }
  for (std::size_t i = 0; i < engines.size(); ++i) {
    Counted& counted = counted_[i];
    if (now - counted.at < kLeastSpan) continue;
    counted.per_second = static_cast<double>(engines[i].output_tokens - counted.tokens) /
                         std::chrono::duration<double>(now - counted.at).count();
    counted.at = now;
    counted.tokens = engines[i].output_tokens;
  }
}

std::vector<LoadReport::Field> LoadReport::fields_of(std::size_t rank, const EngineStats& stats,
                                                     const std::vector<std::string>& sections) {
  using enum MemoryUse;
  const CacheGroupStats& cache = stats.fullest_group();
  const LoadNumbers load = load_numbers(stats);
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto room = static_cast<double>(std::max<std::int64_t>(facts_.max_running_requests, 1));
  std::vector<Field> fields = {
      {"", "", "num_running_reqs", number(load.running)},
      {"", "", "num_waiting_reqs", number(load.waiting)},
      {"", "", "num_waiting_uncached_tokens", number(load.waiting_uncached_tokens)},
      {"", "", "num_used_tokens", number(load.used_tokens)},
      {"", "", "num_total_tokens", number(load.total_tokens)},
      {"", "", "max_total_num_tokens", number(load.capacity)},
      {"", "", "max_running_requests", number(facts_.max_running_requests)},
      {"", "", "token_usage", cache.usage(), false},
      {"", "", "gen_throughput", counted_[rank].per_second, false},
      {"", "", "cache_hit_rate", hit_rate(stats), false},
      {"", "", "utilization", std::min(1.0, std::max(cache.usage(), number(stats.running) / room)), false},
  };
  const auto wanted = [&](std::string_view section) {
    return sections.empty() || std::ranges::find(sections, section) != sections.end();
  };
  if (wanted("memory") && stats.graphs != nullptr) {
    const MemoryReport& memory = stats.graphs->memory;
    fields.push_back({"memory", "memory", "weight_gb", gigabytes(memory[kWeights]), false});
    fields.push_back({"memory", "memory", "kv_cache_gb", gigabytes(memory[kKvCache]), false});
    fields.push_back({"memory", "memory", "graph_gb", gigabytes(memory[kGraphObjects]), false});
    fields.push_back({"memory", "memory", "token_capacity", number(load.capacity)});
  }
  if (wanted("spec") && stats.drafts.steps > 0) {
    fields.push_back({"speculative", "spec", "accept_length", stats.drafts.mean_length(), false});
    fields.push_back({"speculative", "spec", "accept_rate", stats.drafts.kept_share(), false});
  }
  if (wanted("disagg"))
    fields.push_back({.section = "disaggregation", .prefix = "disagg", .name = "mode", .text = "null"});
  if (wanted("queues")) {
    fields.push_back({"queues", "queues", "waiting", number(stats.queued)});
    fields.push_back({"queues", "queues", "grammar", 0});
    fields.push_back({"queues", "queues", "paused", 0});
    fields.push_back({"queues", "queues", "retracted", 0});
  }
  return fields;
}

ApiResult<HttpResponse> LoadReport::answer(std::string_view query, std::span<const EngineStats> engines,
                                           Clock::time_point now) {
  const std::vector<std::string> sections = TRY(read_sections(query));
  const std::optional<std::size_t> only = TRY(read_rank(query, engines.size()));
  const std::string format = query_value(query, "format").value_or("json");
  if (format != "json" && format != "prometheus") return wrong_parameter("format", format, "json or prometheus");
  count(engines, now);

  JsonWriter json;
  json.object().key("timestamp").value(iso_time());
  json.key("version").value(TESSERA_VERSION).key("accelerator").value_or_null(facts_.accelerator);
  json.key("num_accelerators").value(facts_.num_accelerators).key("loads").array();
  std::vector<std::pair<std::string, std::vector<MetricSample>>> metrics;  // in the order of the fields
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    if (only && *only != rank) continue;
    json.object().key("dp_rank").value(rank);
    std::string_view section;
    for (const Field& field : fields_of(rank, engines[rank], sections)) {
      if (field.section != section) {
        if (!section.empty()) json.end_object();
        section = field.section;
        json.key(section).object();
      }
      json.key(field.name);
      if (!field.text.empty()) {
        json.value(field.text);
        continue;
      }
      field.whole ? json.value(static_cast<std::int64_t>(field.number)) : json.value(field.number);
      std::string name = fmt::format("sglang_{}{}{}", field.prefix, field.prefix.empty() ? "" : "_", field.name);
      auto found = std::ranges::find(metrics, name, [](const auto& metric) { return metric.first; });
      if (found == metrics.end()) found = metrics.emplace(metrics.end(), std::move(name), std::vector<MetricSample>());
      found->second.push_back({{{"dp_rank", std::to_string(rank)}}, field.number});
    }
    if (!section.empty()) json.end_object();
    json.end_object();
  }
  if (format == "json") return HttpResponse{.body = json.end_array().end_object().take(), .headers = {}};
  MetricFamilies families;
  for (const auto& [name, samples] : metrics) families.gauges(name, "The value of this field in /v1/loads.", samples);
  return HttpResponse{.content_type = std::string(kMetricsContentType), .body = families.text(), .headers = {}};
}

std::string LoadReport::short_body(std::span<const EngineStats> engines) {
  JsonWriter json;
  json.array();
  for (std::size_t rank = 0; rank < engines.size(); ++rank) {
    const EngineStats& stats = engines[rank];
    json.object().key("dp_rank").value(rank).key("num_reqs").value(stats.running + stats.queued);
    json.key("num_waiting_reqs").value(stats.queued);
    json.key("num_tokens").value(load_numbers(stats).total_tokens).end_object();
  }
  return json.end_array().take();
}

}  // namespace tessera
