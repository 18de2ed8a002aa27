// Catches: an FP8 or int8 cache of keys and values that changes logits by more than its rounding explains; graphs,
// prefixes or drafts that read other numbers than were stored; ranks that scale differently; scales of a checkpoint
// that are missed, swapped or taken unchecked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <filesystem>

#include "golden.h"
#include "golden_cases.h"
#include "rank_golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::case_name;
using ::testing::Contains;
using testing::Distance;
using testing::Golden;
using ::testing::HasSubstr;
using testing::make_engine;
using ::testing::Not;
using testing::read_golden;
using testing::run_all;

EngineOptions options_for(const Golden& golden, const std::string& cache) {
  EngineOptions options = testing::rank_golden_options(golden);
  options.kv_cache_dtype = cache;
  options.graphs.piecewise_tokens = {4, 16, testing::kRankChunk};
  return options;
}

Distance between(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  Distance worst;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Distance d = testing::distance(a[i].logits, b[i].logits);
    worst = {std::max(worst.absolute, d.absolute), std::max(worst.relative, d.relative)};
  }
  return worst;
}

std::vector<Completion> scored(const Golden& golden, const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = make_engine(options);
  return engine == nullptr ? std::vector<Completion>() : run_all(*engine, testing::score_requests(golden));
}

// A cache type that is narrower than bfloat16, and limits for the distance between the logits with this type and the
// logits with an exact cache.
struct NarrowType {
  const char* name;
  double most;         // limit of the relative difference
  double least_times;  // limits as multiples of the difference with a bfloat16 cache
  double most_times;
  bool on_gpus;

  friend void PrintTo(const NarrowType& type, std::ostream* out) { *out << type.name; }
};

// The limits allow for these rounding errors. E4M3 has 3 bits of mantissa and bfloat16 has 7, so E4M3's errors are 16
// times as large. The error of an int8 code is at most 1/252 of its block's greatest magnitude. The error of a bfloat16
// number is at most 1/512 of its own magnitude. The models below are small and random. The rounding of any type
// therefore shows more than in a trained model, and some values are below 2^-6, where E4M3 has fewer bits.
constexpr NarrowType kNarrowTypes[] = {
    {.name = "fp8_e4m3", .most = 0.2, .least_times = 8, .most_times = 40, .on_gpus = true},
    {.name = "int8", .most = 2e-2, .least_times = 0.5, .most_times = 6, .on_gpus = false},
};

class NarrowCache : public ::testing::TestWithParam<std::tuple<NarrowType, const char*>> {
 protected:
  void SetUp() override {
    if (testing::test_device_name() != "cpu" && !type().on_gpus) GTEST_SKIP() << type().name << " is the CPU's";
  }
  static NarrowType type() { return std::get<0>(GetParam()); }
  static const char* family() { return std::get<1>(GetParam()); }
};

TEST_P(NarrowCache, LogitsAreAsNearAsTheCachesRounding) {
  const Golden golden = read_golden(family());
  const std::vector<Completion> exact = scored(golden, options_for(golden, "auto"));
  const double bfloat16 = between(scored(golden, options_for(golden, "bfloat16")), exact).relative;
  for (const bool eager : {false, true}) {
    EngineOptions options = options_for(golden, type().name);
    options.graphs.disable_cuda_graph = eager;
    const double d = between(scored(golden, options), exact).relative;
    std::printf("%s %s %s: relative difference %.2e, with a bfloat16 cache %.2e\n", family(), type().name,
                eager ? "eager" : "graphs", d, bfloat16);
    EXPECT_LE(d, type().most);
    EXPECT_LE(d, type().most_times * bfloat16);
    EXPECT_GE(d, type().least_times * bfloat16);
  }
}

TEST_P(NarrowCache, VerifyPasses) {
  EngineOptions options = options_for(read_golden(family()), type().name);
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  const auto report = verify(engine->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

void expect_same_bits(const std::vector<Completion>& actual, const std::vector<Completion>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].output_ids, expected[i].output_ids) << "prompt " << i;
    ASSERT_EQ(actual[i].output_logprobs.size(), expected[i].output_logprobs.size());
    for (std::size_t t = 0; t < expected[i].output_logprobs.size(); ++t)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(actual[i].output_logprobs[t].token.logprob),
                std::bit_cast<std::uint32_t>(expected[i].output_logprobs[t].token.logprob))
          << "prompt " << i << " token " << t;
  }
}

std::vector<Request> requests_with_logprobs(const Golden& golden) {
  std::vector<Request> requests = testing::greedy_requests(golden);
  for (Request& request : requests) request.logprobs.output = 1;
  return requests;
}

TEST_P(NarrowCache, PrefixHitsGiveTheSameBits) {
  const Golden golden = read_golden(family());
  EngineOptions options = options_for(golden, type().name);
  options.deterministic = true;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<Request> requests = requests_with_logprobs(golden);
  const std::vector<Completion> first = run_all(*engine, requests);
  const std::vector<Completion> second = run_all(*engine, requests);
  expect_same_bits(second, first);
  std::int64_t cached = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) cached += second[i].cached_tokens - first[i].cached_tokens;
  EXPECT_GE(cached, testing::kRankChunk);
}

// One request runs at a time. Requests of higher priority preempt it twice: while its prompt is computed (if that takes
// more than two forwards), and while it decodes.
TEST_P(NarrowCache, PreemptedRequestsGiveTheSameBits) {
  const Golden golden = read_golden(family());
  EngineOptions options = options_for(golden, type().name);
  options.deterministic = true;
  const std::unique_ptr<Engine> undisturbed = make_engine(options);
  options.max_running_requests = 1;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_TRUE(undisturbed != nullptr && engine != nullptr);
  for (const Request& request : requests_with_logprobs(golden)) {
    const std::int64_t before = engine->stats().preemptions;
    const RequestId id = *engine->submit(request);
    for (std::int32_t step = 0; !engine->idle(); ++step) {
      if (step == 2 || step == 8) {
        Request urgent{.prompt = {}, .stop = {.max_new_tokens = 2, .ignore_eos = true}, .priority = 1};
        for (std::int32_t t = 0; t < 40; ++t) urgent.prompt.emplace_back((step * 131 + t * 29 + t * t) % 250);
        ASSERT_TRUE(engine->submit(urgent).ok());
      }
      ASSERT_TRUE(engine->step().ok());
    }
    const std::optional<Completion> done = engine->take(id);
    ASSERT_TRUE(done);
    expect_same_bits({*done}, run_all(*undisturbed, {request}));
    EXPECT_EQ(engine->stats().preemptions - before, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, NarrowCache,
                         ::testing::Combine(::testing::ValuesIn(kNarrowTypes),
                                            ::testing::Values("llama", "qwen3-d128", "gemma2", "gemma3-d256", "gemma4",
                                                              "olmo2", "gpt-oss", "qwen3.5")),
                         [](const auto& narrow) {
                           const char* family = std::get<1>(narrow.param);
                           return std::string(std::get<0>(narrow.param).name) + "_" +
                                  case_name(::testing::TestParamInfo<const char*>(family, 0));
                         });

class NarrowCacheTypes : public ::testing::TestWithParam<NarrowType> {
 protected:
  void SetUp() override {
    if (testing::test_device_name() != "cpu" && !GetParam().on_gpus) GTEST_SKIP() << GetParam().name << " is the CPU's";
  }
};

// Two ranks add numbers in another order than one rank. This moves a few keys and values to a neighbouring
// representable number.
TEST_P(NarrowCacheTypes, TwoRanksComputeWhatOneDoes) {
  for (const char* name : {"llama", "qwen3-d128", "gpt-oss", "qwen3.5"}) {
    const Golden golden = read_golden(name);
    const EngineOptions one = options_for(golden, GetParam().name);
    EngineOptions two = one;
    two.tp_size = 2;
    const Distance d = between(scored(golden, two), scored(golden, one));
    std::printf("%s on 2 ranks: relative difference %.2e\n", name, d.relative);
    EXPECT_LE(d.relative, 2e-2) << name;
  }
}

TEST_P(NarrowCacheTypes, TwoStagesComputeWhatOneDoes) {
  for (const char* name : {"llama", "gemma2"}) {
    const Golden golden = read_golden(name);
    const EngineOptions one = options_for(golden, GetParam().name);
    EngineOptions two = one;
    two.pp_size = 2;
    EXPECT_EQ(between(scored(golden, two), scored(golden, one)).absolute, 0) << name;
  }
}

// With drafts, several rows of a request read the cache in one forward, and rejected draft tokens leave keys in the
// cache that no later row may read. The texts of these models repeat themselves, and most do so not exactly.
TEST_P(NarrowCacheTypes, DraftsChangeNoBits) {
  int refusing = 0;  // models of which drafts were refused
  for (const char* name : {"llama", "qwen3-d128", "gemma2", "gpt-oss"}) {
    const Golden golden = read_golden(name);
    EngineOptions options = options_for(golden, GetParam().name);
    options.deterministic = true;
    std::vector<Request> requests = requests_with_logprobs(golden);
    for (Request& request : requests) {
      request.prompt.resize(std::min<std::size_t>(request.prompt.size(), 8));
      const std::vector<TokenId> once = request.prompt;
      request.prompt.insert(request.prompt.end(), once.begin(), once.end());
      request.stop.max_new_tokens = 40;
    }
    const std::unique_ptr<Engine> plain = make_engine(options);
    options.drafts.source = DraftSource::kText;
    options.max_running_requests = 32;
    const std::unique_ptr<Engine> drafting = make_engine(options);
    ASSERT_TRUE(plain != nullptr && drafting != nullptr);
    expect_same_bits(run_all(*drafting, requests), run_all(*plain, requests));
    EXPECT_GT(drafting->stats().drafts.kept, 0) << name;
    refusing += drafting->stats().drafts.drafted > drafting->stats().drafts.kept ? 1 : 0;
  }
  EXPECT_GE(refusing, 3);
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowCacheTypes, ::testing::ValuesIn(kNarrowTypes),
                         [](const auto& narrow) { return std::string(narrow.param.name); });

// A copy of a golden checkpoint with additional tensors, each of a single number.
class WithScales {
 public:
  struct Scale {
    std::string tensor;
    float value;
  };
  WithScales(const std::string& name, const std::vector<Scale>& scales) {
    const std::string from = testing::golden_path(name);
    std::filesystem::copy(from, folder_.path(), std::filesystem::copy_options::recursive);
    const SafetensorsFile file = *SafetensorsFile::open(from + "/model.safetensors");
    std::vector<StoredTensor> tensors(file.tensors().begin(), file.tensors().end());
    for (const Scale& scale : scales)
      tensors.push_back({.name = scale.tensor,
                         .dtype = StoredDtype::kF32,
                         .shape = {},
                         .data = std::as_bytes(std::span(&scale.value, 1))});
    const Status written = write_safetensors(folder_.path() + "/model.safetensors", tensors);
    EXPECT_TRUE(written.ok()) << written.to_string();
  }
  Golden golden() const { return testing::read_golden_folder(folder_.path()); }
  std::vector<std::string> notes(const std::string& cache) const {
    const std::unique_ptr<Engine> engine = make_engine(options_for(golden(), cache));
    return engine == nullptr ? std::vector<std::string>() : engine->notes();
  }
  void write(const std::string& file, std::string_view content) { folder_.write(file, content); }

 private:
  test::ScratchDir folder_;
};

std::vector<WithScales::Scale> scales_of(const char* keys, float k, const char* values, float v) {
  std::vector<WithScales::Scale> scales;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    scales.push_back({prefix + keys, k});
    scales.push_back({prefix + values, v});
  }
  return scales;
}

std::vector<Completion> scored(const WithScales& checkpoint, const std::string& cache) {
  const Golden golden = checkpoint.golden();
  return scored(golden, options_for(golden, cache));
}

TEST(Float8CacheScales, EverySpellingIsRead) {
  const Golden golden = read_golden("llama");
  const std::vector<Completion> without = scored(golden, options_for(golden, "fp8_e4m3"));
  const std::vector<Completion> other = scored(WithScales("llama", scales_of("k_scale", 3, "v_scale", 0.7F)), "fp8");
  EXPECT_GT(between(other, without).relative, 1e-4) << "the scales were not read";
  EXPECT_LE(between(other, without).relative, 0.2);
  for (const auto& [keys, values] : {std::pair{"k_proj.k_scale", "v_proj.v_scale"},
                                     {"attn.k_scale", "attn.v_scale"},
                                     {"k_proj.output_scale", "v_proj.output_scale"},
                                     {"qkv_proj.k_scale", "qkv_proj.v_scale"}}) {
    const Distance d = between(scored(WithScales("llama", scales_of(keys, 3, values, 0.7F)), "fp8"), other);
    EXPECT_EQ(d.absolute, 0) << keys;
  }
  const std::vector<Completion> both = scored(WithScales("llama", scales_of("k_scale", 3, "v_scale", 3)), "fp8");
  const std::vector<Completion> shared = scored(WithScales("llama", scales_of("kv_scale", 3, "unused", 1)), "fp8");
  EXPECT_EQ(between(shared, both).absolute, 0);
}

// A scale that is far too small makes keys saturate.
TEST(Float8CacheScales, KeysAndValuesHaveTheirOwn) {
  const Golden golden = read_golden("llama");
  const std::vector<Completion> exact = scored(golden, options_for(golden, "auto"));
  const auto distance_with = [&](float k, float v) {
    return between(scored(WithScales("llama", scales_of("k_scale", k, "v_scale", v)), "fp8"), exact).relative;
  };
  const double fitting = distance_with(0.25F, 0.25F);
  const double keys = distance_with(1e-4F, 0.25F);
  const double values = distance_with(0.25F, 1e-4F);
  std::printf("scales that fit: %.2e, of keys too small: %.2e, of values: %.2e\n", fitting, keys, values);
  EXPECT_LE(fitting, 0.1);
  EXPECT_GT(keys, 2 * fitting);
  EXPECT_GT(values, 2 * fitting);
  EXPECT_NE(keys, values);
}

// OLMo2 has no norm before the first layer, so the layer's attention values are embeddings times a matrix. Most of them
// are below 2^-6, the least normal number of E4M3, and lose bits unless a scale raises them.
TEST(Float8CacheScales, GiveSmallValuesTheirBits) {
  const Golden golden = read_golden("olmo2");
  const std::vector<Completion> exact = scored(golden, options_for(golden, "auto"));
  const double ones = between(scored(golden, options_for(golden, "fp8")), exact).relative;
  const WithScales checkpoint("olmo2", {{"model.layers.0.self_attn.v_scale", 1.0F / 256}});
  const double fitting = between(scored(checkpoint, "fp8"), exact).relative;
  std::printf("olmo2, scales of 1: %.2e, a scale that fits the first layer's values: %.2e\n", ones, fitting);
  EXPECT_LE(fitting, 0.7 * ones);
}

TEST(Float8CacheScales, AreUnusedByACacheOfAnotherType) {
  const Golden golden = read_golden("llama");
  const std::vector<Completion> exact = scored(golden, options_for(golden, "auto"));
  const WithScales checkpoint("llama", scales_of("k_scale", 3, "v_scale", 0.7F));
  EXPECT_EQ(between(scored(checkpoint, "auto"), exact).absolute, 0);
}

TEST(Float8CacheScales, NotesSayWhichScalesAreUsed) {
  WithScales checkpoint("llama", scales_of("k_proj.k_scale", 3, "v_proj.v_scale", 0.7F));
  EXPECT_THAT(checkpoint.notes("fp8"), Contains(HasSubstr("6 of their 6 scales are the checkpoint's")));
  EXPECT_THAT(checkpoint.notes("auto"), Not(Contains(HasSubstr("scales"))));
  checkpoint.write("hf_quant_config.json", R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  EXPECT_THAT(checkpoint.notes("fp8"), Contains(HasSubstr("6 of their 6 scales are the checkpoint's")));
  EXPECT_THAT(checkpoint.notes("bfloat16"),
              Contains("the checkpoint is meant for a KV cache of fp8; the cache is bf16, and scales of keys and "
                       "values are unused"));
}

TEST(Float8CacheScales, RefusesScalesThatAreNoPositiveNumbers) {
  for (const float bad : {0.0F, -1.0F, INFINITY, NAN}) {
    const WithScales checkpoint("llama", {{"model.layers.1.self_attn.v_proj.v_scale", bad}});
    const Golden golden = checkpoint.golden();
    const auto engine = Engine::create(options_for(golden, "fp8_e4m3"));
    ASSERT_FALSE(engine.ok()) << bad;
    EXPECT_THAT(engine.status().message(), HasSubstr("\"model.layers.1.self_attn.v_proj.v_scale\": scale 0 is"));
    EXPECT_THAT(engine.status().message(), HasSubstr("accepted: finite numbers above 0"));
  }
}

TEST(Float8CacheTypes, LatentAttentionIsRefused) {
  const Golden golden = read_golden("deepseek-v2");
  const auto engine = Engine::create(options_for(golden, "fp8"));
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.status().message(), HasSubstr("fp8_e4m3) is not supported for latent attention; accepted: auto"));
}

TEST(Int8CacheTypes, GpusAreRefused) {
  if (testing::test_device_name() == "cpu") GTEST_SKIP() << "needs a GPU";
  const auto engine = Engine::create(options_for(read_golden("llama"), "int8"));
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.status().message(), HasSubstr("kv_cache_dtype: int8 is supported on the CPU alone, not on cuda"));
}

// A page takes half the bytes of a bfloat16 page, so the same memory holds twice the tokens.
TEST(Float8CacheTypes, HalvesTheBytesOfAPage) {
  const Golden golden = read_golden("llama");
  const auto page_bytes = [&](const char* cache) {
    const std::unique_ptr<Engine> engine = make_engine(options_for(golden, cache));
    return engine->stats().cache_groups[0].page_bytes;
  };
  EXPECT_EQ(page_bytes("bfloat16"), 2 * page_bytes("fp8_e4m3"));
}

}  // namespace
}  // namespace tessera
