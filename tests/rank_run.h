// Computes a golden checkpoint on several ranks in this process. Each rank is a thread with its own device, slice of
// the weights, KV cache and captured graphs.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "golden.h"
#include "tessera/comm/communicator.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/family.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/piecewise/split_ops.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/wanted_rows.h"

namespace tessera::testing {

inline constexpr std::int64_t kRankPageSize = 16;

inline ForwardBatch whole_prompt(const std::vector<TokenId>& prompt, std::size_t cache_groups) {
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
    if (position % kRankPageSize == 0) pages.emplace_back(static_cast<std::int32_t>(pages.size()) + 1);
    group.slots.emplace_back(static_cast<std::int32_t>(kRankPageSize) + position);
  }
  group.own({pages});
  batch.groups.assign(cache_groups, group);
  return batch;
}

// A function that edits the list of weights before the weights are loaded. For example, it says how the checkpoint
// stores them (WeightPart::storage).
using EditWeights = std::function<void(const Checkpoint& checkpoint, std::vector<WeightSpec>& weights)>;

// Runs one rank from start to end, and returns the logits of all prompts.
inline Result<std::vector<std::vector<float>>> run_rank(const Golden& golden, const ModelConfig& config, int rank,
                                                        int ranks, Communicator* communicator,
                                                        const EditWeights& edit) {
  const std::unique_ptr<CpuDevice> device = TRY(CpuDevice::create({.threads = 1}));
  ModelGraphs graphs =
      TRY(build_model(config, {.page_size = kRankPageSize, .max_requests = 8, .tp_rank = rank, .tp_size = ranks},
                      built_in_ops(), built_in_families()));
  graphs.prefill = TRY(end_with_wanted_rows(graphs.body, graphs.head, built_in_ops(), cpu_kernels()));
  Checkpoint checkpoint = TRY(Checkpoint::open(golden.folder));
  if (edit) edit(checkpoint, graphs.weights);
  Weights weights = TRY(Weights::load(graphs.weights, checkpoint_source(std::move(checkpoint)), *device, false));
  const std::size_t cache_groups = graphs.body.cache_groups.size();

  RunnerOptions options;
  options.prefill_sizes = {4, 16, 48, 256};
  options.decode_sizes = {1};
  options.split_ops = default_split_ops(built_in_ops());
  options.max_tokens = 256;
  options.max_requests = 8;
  options.context_length = 256;
  options.page_size = kRankPageSize;
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

// For each rank: the logits of all rows of each prompt, or the rank's error.
using RankResults = std::vector<Result<std::vector<std::vector<float>>>>;

inline RankResults run_ranks(const Golden& golden, const ModelConfig& config, int ranks, const EditWeights& edit = {}) {
  const std::vector<std::unique_ptr<Communicator>> group = Communicator::create_group(ranks);
  RankResults results(static_cast<std::size_t>(ranks), Status(internal_error("did not run")));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      results[at] = run_rank(golden, config, rank, ranks, group[at].get(), edit);
      if (!results[at].ok()) group[at]->abort(results[at].status().message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace tessera::testing
