// Helpers for tests of draft layers and draft models. They make a runner that drafts, and compute drafts with their
// logits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera::testing {

// The largest accepted absolute difference of two logits. Logits are of the order of 1.
inline constexpr double kTolerance = 1e-4;

inline RunnerOptions long_options() {
  RunnerOptions options = small_options();
  options.context_length = options.max_tokens = 256;
  options.num_pages = {64};
  return options;
}

// Returns a runner of the checkpoint in `folder` with the draft layer or draft model that `model` names.
inline RunnerBench make_draft_bench(const std::string& folder, ModelOptions model, RunnerOptions options) {
  const ModelConfig config = *ModelConfig::read(folder, built_in_families());
  model.page_size = options.page_size;
  model.max_requests = options.max_requests;
  model.max_draft_rows = options.max_tokens;
  ModelGraphs graphs = build_model(config, model, built_in_ops(), built_in_families()).value();
  options.num_pages.resize(graphs.body.cache_groups.size(), options.num_pages.front());
  RunnerBench bench;
  bench.device = *FakeDevice::create({}, {.threads = 1});
  WeightSource source = checkpoint_source(*Checkpoint::open(folder));
  if (model.draft_model != nullptr) source = with_draft_model(std::move(source), *model.draft_model);
  if (model.eagle != nullptr) source = with_eagle3(std::move(source), *model.eagle);
  Weights weights = *Weights::load(graphs.weights, source, *bench.device, false);
  bench.runner = *ModelRunner::create(std::move(graphs), std::move(weights), *bench.device, std::move(options));
  return bench;
}

inline std::vector<std::int32_t> numbers(const std::vector<TokenId>& tokens) {
  std::vector<std::int32_t> ids;
  for (const TokenId token : tokens) ids.push_back(token.value());
  return ids;
}

inline std::vector<std::int32_t> count_up(std::int64_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

struct Drafts {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
  std::vector<std::int32_t> rows;  // the rows of draft_hidden that gave the drafts
};

// Computes drafts after the tokens of `requests`. In a request's `ids`, row p holds the token at position p + 1 for a
// next-token layer, and the token at position p for a draft model.
inline Drafts draft(RunnerBench& bench, const std::vector<TestRequest>& requests, Rows wanted,
                    const std::vector<std::int32_t>& rows) {
  const ForwardBatch batch = make_batch(requests, wanted, bench.runner->model().num_cache_groups());
  Drafts made;
  const ir::Graph& head = bench.runner->model().graphs.draft->head;
  const std::int64_t ids = *head.value(head.outputs[0]).type.shape.back().constant();
  made.logits.resize(batch.wanted_rows.size() * static_cast<std::size_t>(ids));
  DraftStep& step = bench.runner->drafts();
  const Status read = step.read({.batch = batch, .rows = rows});
  EXPECT_TRUE(read.ok()) << read.to_string();
  made.rows = batch.wanted_rows;
  const Status drafted = step.draft({.rows = made.rows}, made.logits);
  EXPECT_TRUE(drafted.ok()) << drafted.to_string();
  EXPECT_TRUE(step.fetch(std::min(batch.num_wanted_rows(), bench.runner->options().max_requests)).ok());
  EXPECT_TRUE(bench.runner->stream().synchronize().ok());
  made.tokens.assign(step.fetched().begin(), step.fetched().end());
  return made;
}

// Runs a forward of the model itself.
inline void forward(RunnerBench& bench, const std::vector<TestRequest>& requests) {
  const ForwardBatch batch = make_batch(requests, Rows::kLast, bench.runner->model().num_cache_groups());
  std::vector<float> logits;
  const Status status = bench.forward(batch, logits).status();
  ASSERT_TRUE(status.ok()) << status.to_string();
}

inline std::string name_of(const ::testing::TestParamInfo<const char*>& golden) {
  std::string name = golden.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.' || c == '/'; }, '_');
  return name;
}

}  // namespace tessera::testing
