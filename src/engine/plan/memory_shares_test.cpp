// Catches: a KV cache that takes memory of forwards or graphs, or leaves memory unused; a requested fraction of the
// device's memory that is ignored; graphs captured beyond their budget; and a start that fails without advice.
#include "tessera/engine/plan/memory_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/plan/engine_plan_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
using test::kGiB;

// Returns the inputs for Qwen3-0.6B on a GPU of 140 GiB.
ShareInputs gpu() {
  return {.on_host = false,
          .capacity = 140 * kGiB,
          .taken = kGiB / 2,
          .reserve = 2 * kGiB,
          .weights = kGiB,
          .activations = 300 * kMiB,
          .cache = {.groups = {{.page_bytes = 2 * kMiB}}},
          .useful_pages = 1 << 20,
          .request_pages = 2560,
          .fraction = 0};
}

std::int64_t pages_of(const MemoryShares& shares) { return shares.cache_groups[0].num_pages; }

TEST(MemoryShares, WithoutAFractionTheCacheGetsWhatIsLeft) {
  ShareInputs in = gpu();
  in.capacity = 24 * kGiB;
  in.reserve = kGiB;
  const MemoryShares shares = *share_memory(in, 250 * kMiB);
  // The cache gets 24 GiB - 0.5 GiB (taken) - 1 GiB (reserve) - 1 GiB (weights) - 300 MiB (activations) - 250 MiB
  // (graphs), in whole pages of 2 MiB. Page 0 is added.
  EXPECT_EQ(pages_of(shares), (21 * kGiB + kGiB / 2 - 550 * kMiB) / (2 * kMiB) + 1);
  EXPECT_EQ(shares.kv_cache, pages_of(shares) * 2 * kMiB);
  EXPECT_LE(shares.fraction, 0.95);
  EXPECT_GE(shares.free(), in.reserve - 2 * in.cache.groups[0].page_bytes);
  EXPECT_LT(shares.free(), in.reserve + 2 * in.cache.groups[0].page_bytes);
}

TEST(MemoryShares, DefaultsLeaveFivePercentFree) {
  const MemoryShares shares = *share_memory(gpu(), 250 * kMiB);
  EXPECT_NEAR(shares.fraction, 0.95, 0.001);
  EXPECT_LE(shares.weights + shares.kv_cache, 0.95 * static_cast<double>(shares.capacity) + 2 * kMiB);
}

TEST(MemoryShares, GraphsAndActivationsShrinkTheCache) {
  ShareInputs in = gpu();
  in.capacity = 24 * kGiB;
  EXPECT_EQ(pages_of(*share_memory(in, 0)) - pages_of(*share_memory(in, 500 * kMiB)), 250);
  in.activations += 100 * kMiB;
  ShareInputs less = in;
  less.activations -= 100 * kMiB;
  EXPECT_EQ(pages_of(*share_memory(less, 0)) - pages_of(*share_memory(in, 0)), 50);
}

TEST(MemoryShares, AGivenFractionIsKept) {
  ShareInputs in = gpu();
  in.fraction = 0.5;
  for (const std::int64_t graphs : {std::int64_t{0}, 500 * kMiB})
    EXPECT_EQ(pages_of(*share_memory(in, graphs)), (70 * kGiB - kGiB) / (2 * kMiB) + 1);
  EXPECT_EQ(*room_for_graphs(in), 140 * kGiB - kGiB / 2 - 70 * kGiB - 300 * kMiB);
}

TEST(MemoryShares, TheCacheTakesNoMoreThanIsUseful) {
  ShareInputs in = gpu();
  in.useful_pages = 100;
  EXPECT_EQ(pages_of(*share_memory(in, 0)), 101);
  in.fraction = 0.9;
  EXPECT_EQ(pages_of(*share_memory(in, 0)), 101);
}

TEST(MemoryShares, CpuCacheDefaultsToAtMost2GiB) {
  ShareInputs in = gpu();
  in.on_host = true;
  EXPECT_EQ(pages_of(*share_memory(in, 0)), 1024 + 1);
  in.fraction = 0.5;
  EXPECT_EQ(pages_of(*share_memory(in, 0)), (70 * kGiB - kGiB) / (2 * kMiB) + 1);
  in.fraction = 0;
  in.capacity = 4 * kGiB;  // leaves 0.5 GiB for activations and KV cache
  EXPECT_EQ(pages_of(*share_memory(in, 0)), (kGiB / 2 - 300 * kMiB) / (2 * kMiB) + 1);
}

TEST(MemoryShares, GraphsLeaveRoomForARequestThatFits) {
  ShareInputs in = gpu();
  in.capacity = 10 * kGiB;
  in.useful_pages = 100000;
  // What is left is 10 GiB - 0.5 GiB (taken) - 2 GiB (reserve) - 1 GiB (weights) - 300 MiB (activations) - 2 MiB (one
  // page). One request has 2560 pages of 2 MiB, which are 5 GiB.
  EXPECT_EQ(*room_for_graphs(in), 6 * kGiB + kGiB / 2 - 302 * kMiB - 5 * kGiB);
  in.request_pages = 100000;
  EXPECT_EQ(*room_for_graphs(in), (6 * kGiB + kGiB / 2 - 302 * kMiB) / 8);
}

// The model has 8 billion parameters and a context of 131 072 tokens. A request of this length takes 16 GiB of cache.
TEST(MemoryShares, LongContextsLeaveGraphsOnACpu) {
  ShareInputs in = gpu();
  in.on_host = true;
  in.capacity = 24 * kGiB;
  in.weights = 15 * kGiB;
  in.request_pages = in.useful_pages = 8192;
  // What is left is 24 GiB - 0.5 GiB (taken) - 2 GiB (reserve) - 15 GiB (weights) - 300 MiB (activations) - 2 MiB (one
  // page) - 2 GiB, which is all that the cache takes on a CPU.
  EXPECT_EQ(*room_for_graphs(in), 4 * kGiB + kGiB / 2 - 302 * kMiB);
}

// The model is Qwen3.5-27B with its whole context of 262 144 tokens. One request has one state and one checkpoint. A
// state and a checkpoint for every 1024 tokens would take 2 · 256 · 150 MiB = 75 GiB.
TEST(MemoryShares, GraphsLeaveOneStateForALongRequest) {
  ShareInputs in = gpu();
  in.weights = 51 * kGiB;
  in.request_pages = 16384;
  in.cache.groups = {{.page_bytes = kMiB}, {.kind = ir::CacheGroup::Kind::kState, .page_bytes = 150 * kMiB}};
  // What is left is 140 GiB - 0.5 GiB (taken) - 2 GiB (reserve) - 51 GiB (weights) - 300 MiB (activations) - 301 MiB
  // (one page and two states). One request has 16 GiB of pages and two states.
  EXPECT_EQ(*room_for_graphs(in), 86 * kGiB + kGiB / 2 - 601 * kMiB - 16 * kGiB - 300 * kMiB);
}

TEST(MemoryShares, ErrorsSayHowToMakeForwardsFit) {
  ShareInputs in = gpu();
  in.capacity = 3 * kGiB + kGiB / 2 + 100 * kMiB;
  EXPECT_THAT(room_for_graphs(in).status().message(),
              AllOf(HasSubstr("300.0 MiB"), HasSubstr("3684.0 MiB"), HasSubstr("mem_fraction_static (0.8, 0.7)"),
                    HasSubstr("chunked_prefill_size (1024)")));
  in = gpu();
  in.fraction = 0.95;
  in.activations = 7 * kGiB;
  EXPECT_EQ(room_for_graphs(in).status().code(), StatusCode::kResourceExhausted);
  in.activations = 6 * kGiB;
  EXPECT_TRUE(room_for_graphs(in).ok());
}

TEST(MemoryShares, WeightsThatDoNotFitAreNamed) {
  ShareInputs in = gpu();
  in.capacity = 3 * kGiB;  // 0.5 GiB are taken, and 2 GiB are reserved
  EXPECT_THAT(room_for_graphs(in).status().message(),
              AllOf(HasSubstr("the weights take 1024.0 MiB, but only 512.0 MiB of 3072.0 MiB are left"),
                    HasSubstr("quantization (int4, fp8)"), HasSubstr("tp_size")));
  in.fraction = 0.9;
  EXPECT_THAT(room_for_graphs(in).status().message(), HasSubstr("forwards need"))
      << "a given fraction keeps nothing free";
}

TEST(MemoryShares, FractionsAreFrom01To095) {
  for (const double fraction : {0.0999, 0.951, -0.5, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    ShareInputs in = gpu();
    in.fraction = fraction;
    EXPECT_EQ(room_for_graphs(in).status().code(), StatusCode::kInvalidArgument) << fraction;
  }
  for (const double fraction : {0.1, 0.95}) {
    ShareInputs in = gpu();
    in.fraction = fraction;
    EXPECT_TRUE(room_for_graphs(in).ok()) << fraction;
  }
}

TEST(MemoryShares, NoPageIsAnError) {
  ShareInputs in = gpu();
  in.fraction = 0.1;
  in.weights = 14 * kGiB - kMiB;
  EXPECT_THAT(share_memory(in, 0).status().message(), AllOf(HasSubstr("KV cache"), HasSubstr("mem_fraction_static")));
}

// Plans a model on a device with `memory` bytes of memory.
using Change = std::function<void(EngineOptions&)>;
Result<EnginePlan> try_plan(std::int64_t memory, const Change& change, const std::string& model = "goldens/llama") {
  DeviceProperties properties = CpuDevice::create({.threads = 1}).value()->properties();
  properties.memory_bytes = memory;
  testing::DescribedDevice device(properties);
  EngineOptions options{.model_path = testing::data_path(model)};
  options.dtype = "float32";
  change(options);
  return plan_engine(options, device);
}

TEST(PlannedMemory, ABudgetDropsSizesAndSaysSo) {
  const EnginePlan all = *try_plan(8 * kGiB, [](EngineOptions&) {});
  EXPECT_THAT(all.notes, IsEmpty());
  EXPECT_GT(all.memory.graph_objects, 0);
  const std::int64_t budget = all.memory.graph_objects / 2;
  const EnginePlan half = *try_plan(8 * kGiB, [&](EngineOptions& o) { o.graphs.memory_budget = budget; });
  EXPECT_LE(half.memory.graph_objects, budget);
  EXPECT_GT(half.memory.graph_objects, budget * 9 / 10) << "no more is dropped than must be";
  EXPECT_LT(half.runner.prefill_sizes.size() + half.runner.decode_sizes.size(),
            all.runner.prefill_sizes.size() + all.runner.decode_sizes.size());
  EXPECT_EQ(half.runner.prefill_sizes.back(), 2048);
  EXPECT_THAT(half.notes, ElementsAre(AllOf(HasSubstr("cuda_graph_memory_budget"), HasSubstr("dropped"))));
}

TEST(PlannedMemory, TokensBeyondTheMemoryAreNoted) {
  const auto notes_with = [](std::int64_t tokens) {
    return try_plan(8 * kGiB, [&](EngineOptions& o) { o.max_total_tokens = tokens; })->notes;
  };
  EXPECT_THAT(notes_with(4096), Not(Contains(HasSubstr("max_total_tokens"))));
  EXPECT_THAT(notes_with(100'000'000'000), Contains(AllOf(HasSubstr("max_total_tokens is 100000000000"),
                                                          HasSubstr("a larger mem_fraction_static"))));
}

TEST(PlannedMemory, ABudgetTooSmallForAnySizeLeavesNone) {
  const EnginePlan none = *try_plan(8 * kGiB, [&](EngineOptions& o) { o.graphs.memory_budget = 1; });
  EXPECT_THAT(none.runner.decode_sizes, IsEmpty());
  EXPECT_THAT(none.runner.prefill_sizes, IsEmpty());
  EXPECT_EQ(none.memory.graph_objects, 0);
  EXPECT_THAT(none.notes, Contains(HasSubstr("cuda_graph_memory_budget")));
}

// Captures the planned sizes and checks that graph objects stay within the plan's budget.
TEST(PlannedMemory, CapturedGraphsKeepTheBudget) {
  EngineOptions options{.model_path = testing::data_path("goldens/llama"), .dtype = "float32"};
  options.max_total_tokens = 256;
  options.graphs.memory_budget = 100 << 10;
  const auto engine = *Engine::create(
      options, std::make_unique<testing::DescribedDevice>(CpuDevice::create({.threads = 1}).value()->properties()));
  EXPECT_GT(engine->runner().memory()[MemoryUse::kGraphObjects], 0);
  EXPECT_LE(engine->runner().memory()[MemoryUse::kGraphObjects], options.graphs.memory_budget);
}

TEST(PlannedMemory, GraphsShrinkToTheMemoryBesideAFraction) {
  const auto with = [](std::int64_t memory, double fraction) {
    return try_plan(memory, [&](EngineOptions& o) {
      o.mem_fraction_static = fraction;
      o.max_running_requests = 4;
    });
  };
  const EnginePlan roomy = *with(400 * kMiB, 0.5);
  const std::int64_t need = roomy.memory.activations + roomy.memory.graph_objects;
  // With slightly less memory than everything needs, there are fewer graphs, and the fraction is kept.
  const std::int64_t tight = 20 * (need - roomy.memory.graph_objects / 3);
  const EnginePlan fewer = *with(tight, 0.95);
  EXPECT_LT(fewer.memory.graph_objects, roomy.memory.graph_objects);
  EXPECT_GT(fewer.memory.graph_objects, 0);
  EXPECT_THAT(fewer.notes, Contains(HasSubstr("dropped")));
  EXPECT_LE(fewer.memory.activations + fewer.memory.graph_objects, tight / 20 + 1);
  const Result<EnginePlan> none = with(10 * roomy.memory.activations, 0.95);
  EXPECT_EQ(none.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(none.status().message(), HasSubstr("mem_fraction_static (0.8, 0.7)"));
}

TEST(PlannedMemory, DropsOversizedPrefillsWhoseArenaDoesNotFit) {
  const Change change = [](EngineOptions& o) {
    o.graphs.piecewise_tokens = {64, 2048, 1 << 17};
    o.max_running_requests = 4;
  };
  EXPECT_THAT(try_plan(16 * kGiB, change)->runner.prefill_sizes, ElementsAre(64, 2048, 1 << 17));
  const EnginePlan small = *try_plan(256 * kMiB, change);
  EXPECT_THAT(small.runner.prefill_sizes, ElementsAre(64, 2048));
  EXPECT_THAT(small.notes, Contains(HasSubstr("the prefill size 131072 is dropped")));
}

TEST(PlannedMemory, WeightsAndCacheTakeThePlannedBytes) {
  const EnginePlan plan = *try_plan(8 * kGiB, [](EngineOptions&) {});
  const auto engine = *Engine::create({.model_path = testing::data_path("goldens/llama"), .dtype = "float32"});
  const MemoryReport taken = engine->runner().memory();
  EXPECT_EQ(plan.memory.weights, taken[MemoryUse::kWeights]);
  EXPECT_EQ(plan.memory.kv_cache, taken[MemoryUse::kKvCache]);
}

// Planning a model of 36 layers must not delay the start.
TEST(PlannedMemory, PredictionIsQuick) {
  const std::string config = ::testing::TempDir() + "/config.json";
  {
    std::ofstream file(config);
    file << R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560,
      "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "hidden_act": "silu"})";
  }
  DeviceProperties properties = CpuDevice::create({.threads = 1}).value()->properties();
  properties.memory_bytes = 64 * kGiB;
  testing::DescribedDevice device(properties);
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Result<EnginePlan> plan = plan_engine({.model_path = config}, device);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    least =
        std::min(least, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("plan_ms", std::to_string(least));
  // The whole plan takes about 10 ms on an idle machine. The bound catches a plan that takes seconds, even on a busy
  // one.
  EXPECT_LT(least, 200) << "ms";
}

}  // namespace
}  // namespace tessera
