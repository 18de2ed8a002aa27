// Catches: an FP8 cache of keys and values that changes logits more than its rounding does; graphs or prefixes that
// read other numbers than were stored; ranks that scale differently; scales of a checkpoint that are missed, swapped or
// taken unchecked.
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

class Float8Cache : public ::testing::TestWithParam<const char*> {};

// E4M3 has 3 bits of mantissa and bfloat16 has 7, so E4M3's rounding errors are 16 times as large. These models are
// small and random: the rounding of either type shows more than in a trained model, and some values are below 2^-6,
// where E4M3 has fewer bits.
TEST_P(Float8Cache, LogitsAreAsNearAsTheCachesRounding) {
  const Golden golden = read_golden(GetParam());
  const std::vector<Completion> exact = scored(golden, options_for(golden, "auto"));
  const double bfloat16 = between(scored(golden, options_for(golden, "bfloat16")), exact).relative;
  for (const bool eager : {false, true}) {
    EngineOptions options = options_for(golden, "fp8_e4m3");
    options.graphs.disable_cuda_graph = eager;
    const double d = between(scored(golden, options), exact).relative;
    std::printf("%s %s: relative difference %.2e, with a bfloat16 cache %.2e\n", GetParam(), eager ? "eager" : "graphs",
                d, bfloat16);
    EXPECT_LE(d, 0.2);
    EXPECT_LE(d, 40 * bfloat16);
    EXPECT_GE(d, 8 * bfloat16);
  }
}

TEST_P(Float8Cache, VerifyPasses) {
  EngineOptions options = options_for(read_golden(GetParam()), "fp8_e4m3");
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  const auto report = verify(engine->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

TEST_P(Float8Cache, PrefixHitsGiveTheSameBits) {
  const Golden golden = read_golden(GetParam());
  EngineOptions options = options_for(golden, "fp8_e4m3");
  options.deterministic = true;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests = testing::greedy_requests(golden);
  for (Request& request : requests) request.logprobs.output = 1;
  const std::vector<Completion> first = run_all(*engine, requests);
  const std::vector<Completion> second = run_all(*engine, requests);
  std::int64_t cached = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(second[i].output_ids, first[i].output_ids) << "prompt " << i;
    ASSERT_EQ(second[i].output_logprobs.size(), first[i].output_logprobs.size());
    for (std::size_t t = 0; t < first[i].output_logprobs.size(); ++t)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(second[i].output_logprobs[t].token.logprob),
                std::bit_cast<std::uint32_t>(first[i].output_logprobs[t].token.logprob))
          << "prompt " << i << " token " << t;
    cached += second[i].cached_tokens - first[i].cached_tokens;
  }
  EXPECT_GE(cached, testing::kRankChunk);
}

INSTANTIATE_TEST_SUITE_P(Families, Float8Cache,
                         ::testing::Values("llama", "qwen3-d128", "gemma2", "gemma3-d256", "gemma4", "olmo2", "gpt-oss",
                                           "qwen3.5"),
                         case_name);

// Sums over ranks are added in another order, which moves a few keys and values to a neighbouring representable number.
TEST(Float8CacheRanks, TwoRanksComputeWhatOneDoes) {
  for (const char* name : {"llama", "qwen3-d128", "gpt-oss", "qwen3.5"}) {
    const Golden golden = read_golden(name);
    const EngineOptions one = options_for(golden, "fp8_e4m3");
    EngineOptions two = one;
    two.tp_size = 2;
    const Distance d = between(scored(golden, two), scored(golden, one));
    std::printf("%s on 2 ranks: relative difference %.2e\n", name, d.relative);
    EXPECT_LE(d.relative, 2e-2) << name;
  }
}

TEST(Float8CacheStages, TwoStagesComputeWhatOneDoes) {
  for (const char* name : {"llama", "gemma2"}) {
    const Golden golden = read_golden(name);
    const EngineOptions one = options_for(golden, "fp8_e4m3");
    EngineOptions two = one;
    two.pp_size = 2;
    EXPECT_EQ(between(scored(golden, two), scored(golden, one)).absolute, 0) << name;
  }
}

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

// OLMo2 has no norm before the first layer's values, which are embeddings times a matrix. Most of these values are
// below 2^-6.
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
