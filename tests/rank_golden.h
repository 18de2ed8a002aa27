// Helpers for tests of golden checkpoints on several ranks, however the ranks divide the work.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "golden.h"
#include "tessera/engine/engine.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera::testing {

inline constexpr std::int64_t kRankChunk = 64;

// Returns options for one rank; the test sets the prefill sizes.
inline EngineOptions rank_golden_options(const Golden& golden) {
  EngineOptions options{.model_path = golden.folder, .device = test_device_name(), .dtype = "float32"};
  options.rank_timeout_s = 60;
  options.context_length = 1600;
  options.max_running_requests = 8;
  options.chunked_prefill_size = kRankChunk;
  options.page_size = 4;
  options.graphs.decode_batches = {1, 2, 4, 8};
  return options;
}

inline std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

inline std::vector<Completion> run_all(Engine& engine, const std::vector<Request>& requests) {
  Result<std::vector<Completion>> done = engine.run(requests);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? *std::move(done) : std::vector<Completion>(requests.size());
}

inline std::vector<Request> score_requests(const Golden& golden) {
  std::vector<Request> requests;
  for (const auto& prompt : golden.prompts) requests.push_back({.prompt = prompt, .sampling = {}, .score = true});
  return requests;
}

inline std::vector<Request> greedy_requests(const Golden& golden) {
  std::vector<Request> requests;
  for (const auto& prompt : golden.prompts)
    requests.push_back({.prompt = prompt, .stop = {.max_new_tokens = 12, .ignore_eos = true}});
  return requests;
}

}  // namespace tessera::testing
