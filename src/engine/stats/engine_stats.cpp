#include "tessera/engine/stats/engine_stats.h"

namespace tessera {

void EngineStats::add(const EngineStats& more) {
  running += more.running;
  queued += more.queued;
  queued_tokens += more.queued_tokens;
  for (std::size_t g = 0; g < num_cache_groups; ++g) {
    cache_groups[g].used_pages += more.cache_groups[g].used_pages;
    cache_groups[g].cached_pages += more.cache_groups[g].cached_pages;
    cache_groups[g].usable_pages += more.cache_groups[g].usable_pages;
  }
  prompt_tokens += more.prompt_tokens;
  cached_tokens += more.cached_tokens;
  output_tokens += more.output_tokens;
  preemptions += more.preemptions;
  split_chunks += more.split_chunks;
  profile_cache_hits += more.profile_cache_hits;
  steps += more.steps;
  images.images += more.images.images;
  images.image_tokens += more.images.image_tokens;
  images.encoded += more.images.encoded;
  images.cache_hits += more.images.cache_hits;
  images.forwards += more.images.forwards;
  images.graph_hits += more.images.graph_hits;
  images.by_reason.add(more.images.by_reason);
  images.tower_seconds += more.images.tower_seconds;
  images.cached_bytes += more.images.cached_bytes;
  drafts.add(more.drafts);
  prefill.add(more.prefill);
  retention.texts += more.retention.texts;
  retention.evicted += more.retention.evicted;
  forwards.add(more.forwards);
}

EngineStats sum_of(std::span<const EngineStats> each) {
  EngineStats sum = each.front();
  for (const EngineStats& more : each.subspan(1)) sum.add(more);
  return sum;
}

}  // namespace tessera
