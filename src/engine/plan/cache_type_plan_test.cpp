// Catches: a type of the KV cache that the plan ignores, computes wrong sizes for, or accepts although no kernel reads
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/plan/engine_plan_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using test::cpu;
using test::kGoldens;
using test::plan;
using test::try_plan;

TEST(CacheTypePlan, FollowsItsOptionOrTheActivations) {
  const auto cache_type = [](const EnginePlan& p) { return p.graphs.body.value(p.graphs.body.states[0]).type.dtype; };
  EXPECT_EQ(cache_type(plan([](EngineOptions& o) { o.dtype = "float16"; })), ir::DType::kFloat16);
  const EnginePlan p = plan([](EngineOptions& o) { o.kv_cache_dtype = "bfloat16"; });
  EXPECT_EQ(cache_type(p), ir::DType::kBFloat16);
  EXPECT_EQ(p.model.dtype, ir::DType::kFloat32);
}

TEST(CacheTypePlan, Float8CachesHaveScalesAndHalfTheBytes) {
  const EnginePlan half = plan([](EngineOptions& o) { o.kv_cache_dtype = "bfloat16"; });
  for (const char* name : {"fp8", "fp8_e4m3"}) {
    const EnginePlan p = plan([&](EngineOptions& o) { o.kv_cache_dtype = name; });
    EXPECT_EQ(p.graphs.body.value(p.graphs.body.states[0]).type.dtype, ir::DType::kFloat8E4M3);
    EXPECT_EQ(2 * p.memory.cache_groups[0].page_bytes, half.memory.cache_groups[0].page_bytes);
    EXPECT_EQ(p.graphs.body.find_value("v_scale.2")->type.to_string(), "f32[1]");
    EXPECT_THAT(p.notes, ElementsAre(HasSubstr("FP8 (E4M3); 0 of their 6 scales are the checkpoint's, the others 1")));
  }
}

// In int8, 32 values and their scale take 34 bytes. A head of this model has 16 values, which take 18 bytes with their
// scale in int8, and 32 bytes in bfloat16.
TEST(CacheTypePlan, Int8CachesCountTheirScales) {
  const EnginePlan half = plan([](EngineOptions& o) { o.kv_cache_dtype = "bfloat16"; });
  for (const char* name : {"int8", "q8_0"}) {
    const EnginePlan p = plan([&](EngineOptions& o) { o.kv_cache_dtype = name; });
    EXPECT_EQ(p.graphs.body.value(p.graphs.body.states[0]).type.to_string(), "u8[P, 16, 2, 18]");
    EXPECT_EQ(32 * p.memory.cache_groups[0].page_bytes, 18 * half.memory.cache_groups[0].page_bytes);
    EXPECT_EQ(p.graphs.body.find_value("v_scale.2"), nullptr);
  }
}

TEST(CacheTypePlan, RefusesInt8CachesOffTheCpu) {
  const Result<EnginePlan> p = try_plan([](EngineOptions& o) { o.kv_cache_dtype = "int8"; }, test::any_gpu());
  EXPECT_THAT(p.status().message(),
              HasSubstr("kv_cache_dtype: int8 is supported on the CPU alone, not on cuda; accepted there: auto, "
                        "float32, bfloat16, float16, fp8_e4m3"));
}

TEST(CacheTypePlan, RefusesNarrowCachesOfLatents) {
  for (const auto& [name, message] :
       {std::pair{"fp8", "fp8_e4m3) is not supported for latent attention; accepted: auto, float"},
        std::pair{"int8", "(int8) is not supported for latent attention; accepted: auto, float"}}) {
    const Result<EnginePlan> p = try_plan([&](EngineOptions& o) {
      o.model_path = kGoldens + "deepseek-v2";
      o.kv_cache_dtype = name;
    });
    EXPECT_THAT(p.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace tessera
