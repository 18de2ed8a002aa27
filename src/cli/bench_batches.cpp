#include "tessera/cli/bench_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tessera::cli {
namespace {

// Adds one request to the batch.
class BatchBuilder {
 public:
  explicit BatchBuilder(const ModelRunner& runner)
      : page_size_(runner.options().page_size),
        num_pages_(runner.options().num_pages),
        random_id_(0, static_cast<std::int32_t>(runner.vocab_size() - 1)) {
    batch_.groups.resize(runner.prefill().executable().graph().cache_groups.size());
  }

  void add(std::int64_t query, std::int64_t prefix) {
    std::vector<PageId> pages;
    for (std::int64_t p = 0; p * page_size_ < prefix + query; ++p)
      pages.emplace_back(static_cast<std::int32_t>(next_page_++));
    for (std::int64_t position = prefix; position < prefix + query; ++position) {
      batch_.input_ids.emplace_back(random_id_(random_));
      batch_.input_rows.push_back(-1);
      batch_.positions.push_back(static_cast<std::int32_t>(position));
      const std::int64_t page = pages[static_cast<std::size_t>(position / page_size_)].value();
      for (CacheGroupBatch& group : batch_.groups)
        group.slots.emplace_back(static_cast<std::int32_t>(page * page_size_ + position % page_size_));
    }
    batch_.query_lens.push_back(static_cast<std::int32_t>(query));
    batch_.kv_lens.push_back(static_cast<std::int32_t>(prefix + query));
    batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens() - 1));
    for (CacheGroupBatch& group : batch_.groups) group.page_tables.push_back(pages);
  }

  Result<ForwardBatch> finish() && {
    if (next_page_ <= num_pages_) return std::move(batch_);
    return resource_exhausted(fmt::format(
        "the batch needs {} pages of the KV cache, which has {}; measure less or raise --mem-fraction-static",
        next_page_ - 1, num_pages_ - 1));
  }

 private:
  ForwardBatch batch_;
  std::int64_t page_size_;
  std::int64_t num_pages_;
  std::int64_t next_page_ = 1;
  std::mt19937 random_{1};
  std::uniform_int_distribution<std::int32_t> random_id_;
};

}  // namespace

Result<ForwardBatch> make_batch(const ModelRunner& runner, const BatchPlan& plan) {
  BatchBuilder builder(runner);
  for (std::int64_t i = 0; i < plan.requests; ++i) builder.add(plan.query, plan.prefix);
  return std::move(builder).finish();
}

Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens) {
  BatchBuilder builder(runner);
  for (std::int64_t left = tokens; left > 0;) {
    const std::int64_t query = std::min(left, runner.options().context_length);
    builder.add(query, 0);
    left -= query;
  }
  return std::move(builder).finish();
}

}  // namespace tessera::cli
