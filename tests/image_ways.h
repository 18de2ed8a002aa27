// Helpers for tests of models with images: options for each way to run a prompt, and the requests of a golden
// checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "image_golden.h"

namespace tessera::testing {

enum class Way { kGraphs, kEager, kChunked, kChunkedEager, kFullGraph };
inline constexpr Way kWays[] = {Way::kGraphs, Way::kEager, Way::kChunked, Way::kChunkedEager, Way::kFullGraph};

inline EngineOptions options_for(const ImageGolden& golden, Way way = Way::kGraphs) {
  EngineOptions options{.model_path = golden.model_path,
                        .projector_path = golden.projector,
                        .device = testing::test_device_name(),
                        .dtype = "float32"};
  options.context_length = 2048;  // decides the number of state slots
  options.max_running_requests = 8;
  options.page_size = 4;
  options.chunked_prefill_size = way == Way::kChunked || way == Way::kChunkedEager ? 16 : 256;
  options.graphs.piecewise_tokens = {4, 16};
  if (options.chunked_prefill_size > 16) options.graphs.piecewise_tokens = {4, 16, 48, 256};
  options.graphs.disable_cuda_graph = way == Way::kEager || way == Way::kChunkedEager;
  if (way == Way::kFullGraph) options.graphs.mode = GraphMode::kFull;
  return options;
}

inline Request scored(const ImageGolden& golden, std::size_t i) {
  Request request = golden.request(i);
  request.score = true;
  return request;
}

inline Request generating(const ImageGolden& golden, std::size_t i) {
  Request request = golden.request(i);
  request.stop = {.max_new_tokens = std::ssize(golden.greedy[i]), .ignore_eos = true};
  return request;
}

inline Completion run_one(Engine& engine, const Request& request) {
  const Result<std::vector<Completion>> done = engine.run({&request, 1});
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? (*done)[0] : Completion{};
}

}  // namespace tessera::testing
