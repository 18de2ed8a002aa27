// Helpers for tests of golden adapters: options, engines, and requests that use an adapter.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera::testing {

inline constexpr const char* kBothAdapters[] = {"qwen3-lora/r8-attention", "qwen3-lora/r4-all-rslora"};

inline EngineOptions options_for(const std::string& base, std::int64_t slots = 4) {
  EngineOptions options{.model_path = golden_path(base), .device = test_device_name(), .dtype = "float32"};
  options.context_length = 1600;
  options.max_running_requests = 8;
  options.chunked_prefill_size = 256;
  options.graphs.piecewise_tokens = {4, 16, 64, 256};
  options.adapters = {.enabled = true, .limits = {.slots = slots, .max_rank = 16}, .paths = {}};
  return options;
}

// Returns an adapter's folder: in the repository's data, or beside the repository if the name begins with "shared/".
inline std::string folder_of(const std::string& adapter) {
  return adapter.starts_with("shared/") ? golden_path(adapter) : data_path("adapters/" + adapter);
}

// Returns the targets that an engine needs for the adapter. By default, the embedding, the head and the experts are no
// targets.
inline std::vector<std::string> targets_of(std::string_view adapter) {
  if (adapter.ends_with("r4-embed-head")) return {std::string(kAllLinears), "embed_tokens", "lm_head"};
  if (adapter.find("qwen3-moe-lora/") != std::string_view::npos) return {std::string(kAllLinears), "experts"};
  return {};
}

// Returns the modules that a stored adapter replaces by whole matrices of its own.
inline std::vector<std::string> saved_by(std::string_view adapter) {
  if (adapter.ends_with("save-embed-head")) return {"embed_tokens", "lm_head"};
  return {};
}

inline std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

inline Status load(Engine& engine, const std::string& name, const std::string& folder, bool replace = false) {
  return engine.adapters().load({.name = name, .replace = replace},
                                TRY(Adapter::load(folder, *engine.adapter_layout(), engine.device())));
}

inline Request scored(const std::vector<TokenId>& prompt, const std::string& adapter) {
  return {.prompt = prompt, .adapter = adapter, .score = true};
}

inline Request greedy(const std::vector<TokenId>& prompt, const std::string& adapter) {
  return {.prompt = prompt, .stop = {.max_new_tokens = 12, .ignore_eos = true}, .adapter = adapter};
}

inline Completion run_one(Engine& engine, const Request& request) {
  const Result<std::vector<Completion>> done = engine.run({&request, 1});
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? (*done)[0] : Completion{};
}

// Names of adapters, each with the golden adapter that it stands for (folder_of()).
using NamedAdapters = std::vector<std::pair<std::string, std::string>>;

// Returns five adapters of one base: the two goldens, each under several names.
inline NamedAdapters five_adapters() {
  return {{"a", kBothAdapters[0]},
          {"b", kBothAdapters[1]},
          {"c", kBothAdapters[0]},
          {"d", kBothAdapters[1]},
          {"e", kBothAdapters[0]}};
}

// Runs a batch with one request for each of `adapters` and one request without an adapter. Checks that each request has
// the tokens and log-probabilities that it has alone. `adapters` must not be empty. The engine must be deterministic,
// have a slot for each adapter, and have no prefix cache.
inline void expect_mixed_equals_alone(Engine& engine, const NamedAdapters& adapters) {
  std::vector<std::string> names;
  for (const auto& [name, adapter] : adapters) {
    const Status loaded = load(engine, name, folder_of(adapter));
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    names.push_back(name);
    if (names.size() == 1) names.emplace_back();  // the second request has no adapter
  }
  const Golden golden = read_golden_folder(folder_of(adapters[0].second));
  std::vector<Request> requests;
  for (std::size_t i = 0; i < names.size(); ++i) {
    requests.push_back(greedy(golden.prompts[i % golden.prompts.size()], names[i]));
    requests.back().logprobs.output = 3;
  }
  const Result<std::vector<Completion>> together = engine.run(requests);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Completion alone = run_one(engine, requests[i]);
    const Completion& mixed = (*together)[i];
    EXPECT_EQ(mixed.output_ids, alone.output_ids) << names[i];
    ASSERT_EQ(mixed.output_logprobs.size(), alone.output_logprobs.size());
    for (std::size_t t = 0; t < alone.output_logprobs.size(); ++t)
      EXPECT_EQ(mixed.output_logprobs[t].token.logprob, alone.output_logprobs[t].token.logprob)
          << "\"" << names[i] << "\" token " << t;
  }
}

}  // namespace tessera::testing
