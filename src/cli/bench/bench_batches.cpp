#include "tessera/cli/bench/bench_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tessera/runner/memory/group_pages.h"

namespace tessera::cli {
namespace {

// Builds a batch by adding one request after another.
class BatchBuilder {
 public:
  explicit BatchBuilder(const ModelRunner& runner)
      : page_size_(runner.options().page_size),
        num_pages_(runner.options().num_pages),
        cache_groups_(runner.prefill().executable().graph().cache_groups),
        next_page_(cache_groups_.size(), 1),
        random_id_(0, static_cast<std::int32_t>(runner.vocab_size() - 1)) {
    batch_.groups.resize(cache_groups_.size());
    tables_.resize(cache_groups_.size());
  }

  void add(std::int64_t query, std::int64_t prefix) {
    for (std::int64_t position = prefix; position < prefix + query; ++position) {
      batch_.input_ids.emplace_back(random_id_(random_));
      batch_.input_rows.push_back(-1);
      batch_.positions.push_back(static_cast<std::int32_t>(position));
    }
    for (std::size_t g = 0; g < batch_.groups.size(); ++g) add_pages(g, query, prefix);
    batch_.query_lens.push_back(static_cast<std::int32_t>(query));
    batch_.kv_lens.push_back(static_cast<std::int32_t>(prefix + query));
    batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens() - 1));
  }

  Result<ForwardBatch> finish() && {
    for (std::size_t g = 0; g < next_page_.size(); ++g) {
      if (next_page_[g] <= num_pages_[g]) continue;
      return resource_exhausted(
          fmt::format("the batch needs {} pages of the KV cache's group {}, which has {}; "
                      "measure less or raise --mem-fraction-static",
                      next_page_[g] - 1, cache_groups_[g].name, num_pages_[g] - 1));
    }
    for (std::size_t g = 0; g < tables_.size(); ++g) batch_.groups[g].own(std::move(tables_[g]));
    return std::move(batch_);
  }

 private:
  // Gives the request its pages in cache group g. Page 0 takes the place of each page that lies before the attention
  // window, as in the engine.
  void add_pages(std::size_t g, std::int64_t query, std::int64_t prefix) {
    const ir::CacheGroup& group = cache_groups_[g];
    const PageRange touched = pages_touched(group, prefix, prefix + query, page_size_);
    std::vector<PageId> pages(static_cast<std::size_t>(touched.begin), PageId(0));
    for (std::int64_t i = 0; i < touched.count(); ++i) pages.emplace_back(static_cast<std::int32_t>(next_page_[g]++));
    append_slots(batch_.groups[g], group, prefix, prefix + query, page_size_, pages);
    tables_[g].push_back(std::move(pages));
  }

  ForwardBatch batch_;
  std::vector<std::vector<std::vector<PageId>>> tables_;  // [cache groups][requests][pages]
  std::int64_t page_size_;
  std::vector<std::int64_t> num_pages_;  // [cache groups]: number of pages in each group
  std::vector<ir::CacheGroup> cache_groups_;
  std::vector<std::int64_t> next_page_;  // [cache groups]: the next unused page of each group
  std::mt19937 random_{1};
  std::uniform_int_distribution<std::int32_t> random_id_;
};

}  // namespace

EngineOptions with_adapter_slots(EngineOptions options, std::int64_t adapters) {
  if (adapters == 0) return options;
  options.adapters.enabled = true;
  options.adapters.limits.slots = std::max(options.adapters.limits.slots, adapters);
  return options;
}

void assign_adapters(ForwardBatch& batch, std::int64_t adapters) {
  if (adapters == 0) return;
  for (std::int64_t i = 0; i < batch.num_requests(); ++i)
    batch.adapter_slots.insert(batch.adapter_slots.end(),
                               static_cast<std::size_t>(batch.query_lens[static_cast<std::size_t>(i)]),
                               static_cast<std::int32_t>(i % adapters));
}

Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens) {
  if (const std::int64_t most = runner.options().max_tokens; tokens > most)
    return invalid_argument(fmt::format(
        "--num-tokens: {} is not accepted; {} are the most of a forward (--chunked-prefill-size)", tokens, most));
  BatchBuilder builder(runner);
  for (std::int64_t left = tokens; left > 0;) {
    const std::int64_t query = std::min(left, runner.options().context_length);
    builder.add(query, 0);
    left -= query;
  }
  return std::move(builder).finish();
}

Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context) {
  if (const std::int64_t most = runner.options().max_requests; requests > most)
    return invalid_argument(fmt::format(
        "--batch-size: {} is not accepted; {} are the most of a forward (--max-running-requests and their drafts)",
        requests, most));
  BatchBuilder builder(runner);
  for (std::int64_t i = 0; i < requests; ++i) builder.add(1, context - 1);
  return std::move(builder).finish();
}

std::int64_t max_prefill_tokens(const ModelRunner& runner) {
  const RunnerOptions& options = runner.options();
  const std::int64_t per_request = pages_for(options.context_length, options.page_size);
  const std::int64_t full_requests = options.shared_pages() / per_request;
  const std::int64_t rest = options.shared_pages() % per_request * options.page_size;
  return std::min(options.max_tokens, full_requests * options.context_length + rest);
}

std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context) {
  const RunnerOptions& options = runner.options();
  std::int64_t most = options.max_requests;
  const std::vector<ir::CacheGroup>& groups = runner.prefill().executable().graph().cache_groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t pages = pages_touched(groups[g], context - 1, context, options.page_size).count();
    most = std::min(most, (options.num_pages[g] - 1) / pages);
  }
  return most;
}

}  // namespace tessera::cli
