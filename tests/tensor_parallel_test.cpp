// Catches: a rank that loads the wrong slice, a partial sum that is not added, ranks that disagree.
//
// Two ranks in this process, each a thread with its own device, weights slice, KV cache and captured
// graphs, compute a golden checkpoint together.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <thread>

#include "golden.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/collective.h"
#include "tessera/ops/registry.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/model_runner.h"

namespace tessera {
namespace {

using testing::Golden;

constexpr std::int64_t kPageSize = 16;

ForwardBatch whole_prompt(const std::vector<TokenId>& prompt, std::size_t cache_groups) {
  const auto tokens = static_cast<std::int32_t>(prompt.size());
  ForwardBatch batch;
  batch.input_ids = prompt;
  batch.input_rows.assign(prompt.size(), -1);
  batch.positions.resize(prompt.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.query_lens = {tokens};
  batch.kv_lens = {tokens};
  batch.wanted_rows = batch.positions;
  CacheGroupBatch group;
  std::vector<PageId> pages;
  for (std::int32_t position = 0; position < tokens; ++position) {
    if (position % kPageSize == 0) pages.emplace_back(static_cast<std::int32_t>(pages.size()) + 1);
    group.slots.emplace_back(static_cast<std::int32_t>(kPageSize) + position);
  }
  group.page_tables = {pages};
  batch.groups.assign(cache_groups, group);
  return batch;
}

// What one rank does from start to end: all prompts' logits.
Result<std::vector<std::vector<float>>> run_rank(const Golden& golden, int rank, int ranks,
                                                 Communicator* communicator) {
  const std::unique_ptr<CpuDevice> device = TRY(CpuDevice::create({.threads = 1}));
  const ModelConfig config = TRY(ModelConfig::read(golden.folder));
  ModelGraphs graphs = TRY(
      build_model(config, {.page_size = kPageSize, .max_requests = 8, .tp_rank = rank, .tp_size = ranks}, op_table()));

  Weights weights =
      TRY(Weights::load(graphs.weights, checkpoint_source(TRY(Checkpoint::open(golden.folder))), *device, false));
  const std::size_t cache_groups = graphs.body.cache_groups.size();

  RunnerOptions options;
  options.prefill_sizes = {4, 16, 48, 256};
  options.decode_sizes = {1};
  options.split_ops = default_split_ops(op_table());
  options.max_tokens = 256;
  options.max_requests = 8;
  options.context_length = 256;
  options.page_size = kPageSize;
  options.num_pages.assign(cache_groups, 32);
  options.communicator = communicator;
  const std::unique_ptr<ModelRunner> runner =
      TRY(ModelRunner::create(std::move(graphs), std::move(weights), *device, options));
  TRY(runner->capture());

  std::vector<std::vector<float>> all;
  for (const std::vector<TokenId>& prompt : golden.prompts) {
    std::vector<float> logits(prompt.size() * static_cast<std::size_t>(config.vocab_size));
    const ForwardOutputs outputs =
        TRY(runner->forward({.batch = whole_prompt(prompt, cache_groups), .logits = logits}));
    if (outputs.decision.runner == RunnerKind::kEager) return internal_error("a forward was not replayed");
    all.push_back(std::move(logits));
  }
  return all;
}

class TensorParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallel, TwoRanksEqualHuggingFaceAndEachOther) {
  const Golden golden = testing::read_golden(GetParam());
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(2);
  std::vector<Result<std::vector<std::vector<float>>>> results(2, Status(internal_error("did not run")));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      results[at] = run_rank(golden, rank, 2, group[at].get());
      if (!results[at].ok()) group[at]->abort(results[at].status().message());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(*results[0], *results[1]) << "ranks must agree to the bit";
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const testing::Distance d = testing::distance((*results[0])[i], golden.stored_rows(i));
    std::printf("%s prompt %zu: greatest difference %.2e\n", GetParam(), i, d.absolute);
    EXPECT_LE(d.absolute, 1e-4);
  }
}

// Biases on q, k, v, o; a tied head; per-head norms.
INSTANTIATE_TEST_SUITE_P(Goldens, TensorParallel,
                         ::testing::Values("llama", "llama-bias", "qwen2", "qwen3", "llama3-rope-tied"),
                         [](const auto& name) {
                           std::string text = name.param;
                           for (char& c : text) c = c == '-' ? '_' : c;
                           return text;
                         });

}  // namespace
}  // namespace tessera
