#include "tessera/server/work/text_pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/server/http/client_of.h"
#include "tessera/server/metrics/metric_families.h"

namespace tessera {
namespace {

// Returns one thread more than there are cores, but at most nine. A client that already has a thread never gets the
// last free thread. Without the additional thread, one client could therefore not use all cores.
std::size_t heavy_threads(std::size_t cores) { return std::clamp<std::size_t>(cores, 1, 8) + 1; }
constexpr std::size_t kSmallThreads = 4;
constexpr std::size_t kAnswerThreads = 2;

TextPoolOptions pool_options(TextWork work, const TextPoolsOptions& options) {
  const std::size_t heavy = heavy_threads(options.cores);
  const auto of = [](std::string name, std::size_t threads) {
    return TextPoolOptions{.name = std::move(name),
                           .limits = {.threads = threads, .most_waiting = TextPools::kMostOthers},
                           .nice = TextPools::kHeavyNice};
  };
  switch (work) {
    case TextWork::kLarge: return of("large", heavy);
    case TextWork::kImages: return of("images", heavy + options.fetches);
    case TextWork::kGrammars: return of("grammars", heavy);
    case TextWork::kAnswers: return of("answers", kAnswerThreads);
    case TextWork::kSmall: break;
  }
  return {.name = "small", .limits = {.threads = kSmallThreads, .most_waiting = TextPools::kMostSmall}};
}

ApiError pool_is_full(const std::string& pool) {
  return {.http_status = 503,
          .message = fmt::format("too many requests wait to be read or answered (pool \"{}\"); come again", pool),
          .type = "server_error",
          .param = {},
          .code = "service_unavailable",
          .retry_after_s = 1};
}

}  // namespace

TextPools::TextPools(const TextPoolsOptions& options, std::span<const std::string> api_keys) : api_keys_(api_keys) {
  for (std::size_t i = 0; i < kNumTextWorks; ++i)
    pools_[i] = std::make_unique<TextPool>(pool_options(static_cast<TextWork>(i), options));
}

void TextPools::post(TextWork work, const Call& call, std::function<void()> run) {
  TextPool& pool = *pools_[static_cast<std::size_t>(work)];
  const TextPool::Id id = pool.post({.client = client_of(call.request(), api_keys_),
                                     .run = std::move(run),
                                     .not_run = [call, &pool](TextPool::NotRun why) {
                                       if (why == TextPool::NotRun::kFull) return call.fail(pool_is_full(pool.name()));
                                       call.log(499, "the client has left");
                                     }});
  call.on_disconnect([&pool, id] { pool.cancel(id); });
}

void TextPools::post(TextWork work, std::function<void()> run) {
  pools_[static_cast<std::size_t>(work)]->post(
      {.client = "", .run = std::move(run), .not_run = [](TextPool::NotRun) {}});
}

std::string pool_metrics(const TextPools& pools) {
  std::vector<MetricSample> waiting;
  std::vector<MetricSample> running;
  std::vector<MetricSample> refused;
  std::vector<MetricFamilies::LabelledHistogram> waits;
  for (const std::unique_ptr<TextPool>& pool : pools.all()) {
    const MetricLabels labels = {{"pool", pool->name()}};
    const TextPool::Stats stats = pool->stats();
    waiting.push_back({labels, static_cast<double>(stats.waiting)});
    running.push_back({labels, static_cast<double>(stats.running)});
    refused.push_back({labels, static_cast<double>(stats.refused)});
    waits.push_back({labels, &pool->waits()});
  }
  MetricFamilies families;
  families.gauges("tessera:text_jobs_waiting", "Requests that wait to be read, or answers to be built.", waiting);
  families.gauges("tessera:text_jobs_running", "Requests that are being read, or answers that are being built.",
                  running);
  families.counters("tessera:text_jobs_refused_total", "Jobs refused because the queue of their pool was full.",
                    refused);
  families.histograms("tessera:text_job_wait_seconds", "Seconds from a job's arrival in its queue to its start.",
                      waits);
  return families.text();
}

}  // namespace tessera
