// Catches: an answer that depends on other requests that are computed at the same time. Deterministic inference
// promises the same bits whatever other requests are in the batch, however prompts are split into prefill chunks, and
// with or without cached prefixes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

constexpr std::int64_t kRequests = 16;

// Returns the names of all golden checkpoints in tests/data/goldens whose models generate tokens.
std::vector<std::string> golden_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("goldens")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::erase(names, "qwen3-embedding");
  std::erase(names, "qwen3-reranker");
  std::sort(names.begin(), names.end());
  return names;
}

// Returns a request with a prompt of 2 to 92 tokens. Every third prompt begins like prompt 0, and every second request
// is sampled.
Request request(std::int64_t index) {
  Request made{.stop = {.max_new_tokens = 8 + index, .ignore_eos = true}};
  const std::int64_t family = index % 3 == 0 ? 0 : index;
  for (std::int64_t i = 0; i < 2 + 6 * index; ++i)
    made.prompt.emplace_back(static_cast<std::int32_t>((family * 61 + i * 17 + i * i) % 250));
  made.prompt.back() = TokenId(static_cast<std::int32_t>(index));
  made.logprobs.output = 2;
  if (index % 2 == 1) made.sampling = {.temperature = 0.9, .top_p = 0.95, .seed = index};
  return made;
}

struct Model {
  std::string golden;
  std::string kv_cache_dtype = "auto";
  std::string dtype = "float32";
};

Result<std::unique_ptr<Engine>> make(const Model& model, bool cached, std::int64_t chunk) {
  EngineOptions options{
      .model_path = testing::golden_path(model.golden), .device = testing::test_device_name(), .dtype = model.dtype};
  options.kv_cache_dtype = model.kv_cache_dtype;
  options.context_length = 256;
  options.chunked_prefill_size = chunk;
  options.max_running_requests = 12;
  options.deterministic = true;
  options.disable_radix_cache = !cached;
  options.graphs.piecewise_tokens = {8, chunk};
  return Engine::create(options);
}

// The events that a client sees: each token and the bits of its log-probability.
using Stream = std::vector<std::uint32_t>;

void append(Stream& stream, const RequestEvent& event) {
  ASSERT_TRUE(event.error.ok()) << event.error.to_string();
  if (!event.token) return;
  stream.push_back(static_cast<std::uint32_t>(event.token->value()));
  stream.push_back(std::bit_cast<std::uint32_t>(event.logprobs->token.logprob));
  for (const TokenLogprob& top : event.logprobs->top) stream.push_back(std::bit_cast<std::uint32_t>(top.logprob));
}

class DeterministicIdentity : public ::testing::TestWithParam<Model> {};

TEST_P(DeterministicIdentity, SixteenRequestsStreamTheSameBytesAloneAndTogether) {
  if (GetParam().kv_cache_dtype == "int8" && testing::test_device_name() != "cpu")
    GTEST_SKIP() << "caches of int8 are the CPU's";
  Result<std::unique_ptr<Engine>> alone = make(GetParam(), /*cached=*/false, /*chunk=*/128);
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  std::vector<Stream> want(kRequests);
  for (std::int64_t i = 0; i < kRequests; ++i) {
    const Request one = request(i);
    const auto done = (*alone)->run(
        {&one, 1}, [&](std::size_t, const RequestEvent& event) { append(want[static_cast<std::size_t>(i)], event); });
    ASSERT_TRUE(done.ok()) << done.status().to_string();
  }

  Result<std::unique_ptr<Engine>> together = make(GetParam(), /*cached=*/true, /*chunk=*/32);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  std::map<RequestId, std::size_t> index_of;
  std::vector<Stream> got(kRequests);
  // Up to three requests arrive before each step, while earlier requests run.
  for (std::int64_t step = 0; step == 0 || !(*together)->idle(); ++step) {
    for (int i = 0; i < 3 && std::ssize(index_of) < kRequests; ++i) {
      const std::size_t index = index_of.size();
      index_of[*(*together)->submit(request(static_cast<std::int64_t>(index)))] = index;
    }
    const auto events = (*together)->step();
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    for (const RequestEvent& event : *events) append(got[index_of.at(event.request)], event);
  }
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << "request " << i;
  // The cache keeps states at few positions. These prompts diverge at other positions, so no state is reused.
  // recurrent_cache_test has prompts that share a state.
  const bool has_states = GetParam().golden.find("qwen3.5") != std::string::npos || GetParam().golden == "qwen3-next";
  EXPECT_EQ((*together)->stats().cached_tokens > 0, !has_states);
}

std::string case_name(const ::testing::TestParamInfo<Model>& info) {
  std::string text = info.param.golden;
  for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (info.param.kv_cache_dtype != "auto") text += "_" + info.param.kv_cache_dtype;
  return info.param.dtype == "float32" ? text : text + "_" + info.param.dtype;
}

std::vector<Model> every_golden() {
  std::vector<Model> models;
  for (const std::string& golden : golden_families()) models.push_back({.golden = golden});
  return models;
}

INSTANTIATE_TEST_SUITE_P(EveryGolden, DeterministicIdentity, ::testing::ValuesIn(every_golden()), case_name);

std::vector<Model> every_quantised() {
  std::vector<Model> models;
  for (const char* golden : testing::kQuantisedGoldens) models.push_back({.golden = golden});
  for (const char* golden : testing::kRecurrentQuantisedGoldens) models.push_back({.golden = golden});
  return models;
}

INSTANTIATE_TEST_SUITE_P(Quantised, DeterministicIdentity, ::testing::ValuesIn(every_quantised()), case_name);

// Kernels of quantised weights round their inputs only in types of 16 bits. The weights are FP8 in blocks, INT8, int4
// (AWQ and GPTQ), NVFP4 and MXFP4.
INSTANTIATE_TEST_SUITE_P(QuantisedBfloat16, DeterministicIdentity,
                         ::testing::Values(Model{"quantised/qwen3-fp8-block", "auto", "bfloat16"},
                                           Model{"quantised/llama-ct-w8a8", "auto", "bfloat16"},
                                           Model{"quantised/llama-awq", "auto", "bfloat16"},
                                           Model{"quantised/qwen3-gptq", "auto", "bfloat16"},
                                           Model{"quantised/llama-ct-nvfp4", "auto", "bfloat16"},
                                           Model{"quantised/llama-quark-mxfp4", "auto", "bfloat16"}),
                         case_name);

// The families have full attention, sliding windows, attention sinks, and recurrent layers. Keys and values are cached
// in FP8 or int8.
INSTANTIATE_TEST_SUITE_P(NarrowCaches, DeterministicIdentity,
                         ::testing::Values(Model{"llama", "fp8_e4m3"}, Model{"llama", "int8"}, Model{"gemma3", "int8"},
                                           Model{"gpt-oss", "int8"}, Model{"qwen3.5", "int8"}),
                         case_name);

}  // namespace
}  // namespace tessera
