// Helpers of the engine's tests: a small engine on a golden checkpoint, and requests for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera::test {

inline EngineOptions small_options() {
  EngineOptions options{
      .model_path = testing::data_path("goldens/llama"), .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 64;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 4;
  options.page_size = 8;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {4, 16, 32};
  return options;
}

// Returns options for the bundled model, which has a tokenizer.
inline EngineOptions demo_options() {
  EngineOptions options{.model_path = testing::source_path("models/demo"), .device = testing::test_device_name()};
  options.context_length = 256;
  options.chunked_prefill_size = 64;
  options.max_running_requests = 4;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {16, 64};
  return options;
}

// Makes an engine. If that fails, throws an exception. The exception fails the test, and the program goes on with the
// next test.
inline std::unique_ptr<Engine> make_engine(const EngineOptions& options = small_options()) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  if (!engine.ok()) throw std::runtime_error(engine.status().to_string());
  return *std::move(engine);
}

inline Request request(std::int64_t prompt, std::int64_t new_tokens, std::int32_t salt = 1) {
  Request made{.stop = {.max_new_tokens = new_tokens, .ignore_eos = true}};
  for (std::int32_t i = 0; i < prompt; ++i) made.prompt.emplace_back((salt * 61 + i * 17 + i * i) % 500);
  return made;
}

inline Request sampled(std::int64_t prompt, std::int64_t new_tokens, std::int64_t seed) {
  Request made = request(prompt, new_tokens);
  made.sampling = {.temperature = 1.5, .seed = seed};
  return made;
}

inline Completion run_one(Engine& engine, const Request& r) {
  const Result<std::vector<Completion>> done = engine.run({&r, 1});
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? (*done)[0] : Completion{};
}

// Runs the requests and returns their tokens.
inline std::vector<std::vector<TokenId>> outputs_of(Engine& engine, const std::vector<Request>& requests) {
  const Result<std::vector<Completion>> done = engine.run(requests);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  std::vector<std::vector<TokenId>> outputs;
  for (std::size_t i = 0; done.ok() && i < done->size(); ++i) outputs.push_back((*done)[i].output_ids);
  return outputs;
}

// Runs each test twice: step by step, and with each step scheduled while the previous one runs.
class EngineRuns : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Engine> make(EngineOptions options = small_options()) {
    options.overlap_schedule = GetParam();
    return make_engine(options);
  }
};

inline std::string overlap_name(const ::testing::TestParamInfo<bool>& overlap) {
  return overlap.param ? "ahead" : "in_step";
}

}  // namespace tessera::test
