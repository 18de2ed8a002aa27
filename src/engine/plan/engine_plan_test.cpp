// Catches: options that are ignored, silently changed, or accepted although they cannot be met; and limits that are not
// reported.
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/plan/engine_plan_test_util.h"
#include "tessera/engine/plan/plan_ladders.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using test::Change;
using test::cpu;
using test::kGiB;
using test::kGoldens;
using test::plan;
using test::try_plan;

TEST(EnginePlan, DefaultsOnACpu) {
  const EnginePlan p = plan();
  EXPECT_EQ(p.runner.max_tokens, 2048);
  EXPECT_EQ(p.max_running, 256);
  EXPECT_EQ(p.runner.context_length, 2048) << "the model's";
  EXPECT_EQ(p.runner.page_size, 16);
  EXPECT_EQ(p.runner.prefill_sizes, prefill_ladder(2048));
  EXPECT_EQ(p.runner.decode_sizes, decode_ladder(256));
  EXPECT_THAT(p.runner.split_ops, ElementsAre("all_reduce", "attention", "gated_delta_net", "latent_attention"));
  EXPECT_TRUE(p.runner.graphs.prefill && p.runner.graphs.decode && p.runner.decode_padding);
  EXPECT_THAT(p.notes, IsEmpty());
}

// Prefill graphs are cut into pieces at their split operators. With two-batch overlap, a piece computes one half of a
// forward while the ranks exchange the other half. So a piece must contain exchanges, and exchanges are not split
// operators.
TEST(EnginePlan, TwoBatchOverlapTakesExchangesIntoPieces) {
  const auto overlap = [](EngineOptions& o) {
    o.tp_size = 2;
    o.two_batch_overlap = true;
  };
  EXPECT_EQ(plan(overlap).runner.halves_from, 1024);
  EXPECT_THAT(plan(overlap).runner.split_ops, ElementsAre("attention", "gated_delta_net", "latent_attention"));
  EXPECT_EQ(plan([](EngineOptions& o) { o.two_batch_overlap = true; }).runner.halves_from, 0) << "one rank";
  const auto named = [&](EngineOptions& o) {
    overlap(o);
    o.graphs.split_ops = {"attention", "all_reduce"};
  };
  EXPECT_THAT(plan(named).runner.split_ops, ElementsAre("attention", "all_reduce")) << "what is asked for is done";
  const auto small = [&](EngineOptions& o) {
    overlap(o);
    o.chunked_prefill_size = 512;
  };
  EXPECT_THAT(plan(small).notes, Contains("two-batch overlap has no effect: no forward has 1024 tokens; "
                                          "chunked_prefill_size is 512"));
  EXPECT_THAT(plan(overlap).notes, Not(Contains(HasSubstr("two-batch overlap"))));
  const auto one = [](EngineOptions& o) { o.two_batch_least_tokens = 1; };
  EXPECT_THAT(try_plan(one).status().message(), HasSubstr("two_batch_least_tokens: 1 is not accepted; at least 2 is"));
}

TEST(EnginePlan, FullGraphsAreChosenInTheDefaultModeAlone) {
  EXPECT_TRUE(plan().runner.choose_full);
  for (const GraphMode mode : {GraphMode::kPiecewise, GraphMode::kFull})
    EXPECT_FALSE(plan([&](EngineOptions& o) { o.graphs.mode = mode; }).runner.choose_full);
  EXPECT_FALSE(plan([](EngineOptions& o) { o.graphs.memory_budget = kGiB; }).runner.choose_full)
      << "what is measured later is no part of what a budget bounds";
}

TEST(EnginePlan, PassesRunOnBodyHeadAndSamplerUnlessDisabled) {
  const std::size_t passes = pass_list().size();
  const std::vector<PassReport> all = plan().passes;
  ASSERT_EQ(all.size(), 3 * passes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].pass, pass_list()[i % passes].name);
    EXPECT_EQ(all[i].graph, (std::vector{"body", "head", "sampler"})[i / passes]);
  }
  const EnginePlan without = plan([](EngineOptions& o) { o.graphs.disabled_passes = {"remove_copies"}; });
  EXPECT_EQ(without.passes.size(), 3 * (passes - 1));
  const Status status = try_plan([](EngineOptions& o) { o.graphs.disabled_passes = {"inductor"}; }).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("cuda_graph_disable_passes"), HasSubstr("\"inductor\""), HasSubstr("remove_copies")));
}

TEST(EnginePlan, DtypeFollowsOptionCheckpointAndDevice) {
  const struct {
    const char* dtype;
    bool native_bf16;
    ir::DType want;
  } cases[] = {{"auto", false, ir::DType::kFloat32},   {"auto", true, ir::DType::kBFloat16},
               {"float32", true, ir::DType::kFloat32}, {"bfloat16", false, ir::DType::kBFloat16},
               {"float", true, ir::DType::kFloat32},   {"float16", false, ir::DType::kFloat16},
               {"half", false, ir::DType::kFloat16}};
  for (const auto& c : cases) {
    const EnginePlan p = plan([&](EngineOptions& o) { o.dtype = c.dtype; }, cpu(c.native_bf16));
    EXPECT_EQ(p.model.dtype, c.want) << c.dtype;
    EXPECT_EQ(p.graphs.body.value(p.graphs.body.outputs[0]).type.dtype, c.want);
  }
}

TEST(EnginePlan, SaysWhichFactorsLongRopeTakes) {
  const auto notes = [](std::int64_t context_length) {
    return plan([&](EngineOptions& o) {
             o.model_path = kGoldens + "phi3-longrope";
             o.context_length = context_length;
           })
        .notes;
  };
  EXPECT_THAT(notes(17), Contains(AllOf(HasSubstr("context length 17"), HasSubstr("at most 16"))));
  EXPECT_THAT(notes(16), Not(Contains(HasSubstr("LongRoPE"))));
}

TEST(EnginePlan, RefusesByOptionAndValue) {
  const struct {
    Change change;
    const char* message;
  } cases[] = {
      {[](EngineOptions& o) { o.dtype = "int8"; }, "dtype: \"int8\" is none of"},
      {[](EngineOptions& o) { o.kv_cache_dtype = "fp8_e5m2"; },
       "kv_cache_dtype: \"fp8_e5m2\" is none of auto, float32, bfloat16, float16, fp8_e4m3, int8"},
      {[](EngineOptions& o) { o.context_length = -1; }, "context_length: -1"},
      {[](EngineOptions& o) { o.context_length = 4096; }, "context_length: 4096 is more than the model's 2048"},
      {[](EngineOptions& o) { o.chunked_prefill_size = -8; }, "chunked_prefill_size: -8"},
      {[](EngineOptions& o) { o.max_running_requests = -1; }, "max_running_requests: -1"},
      {[](EngineOptions& o) { o.page_size = 0; }, "page_size: 0"},
      {[](EngineOptions& o) { o.page_size = 1025; }, "page_size: 1025"},
      {[](EngineOptions& o) { o.mem_fraction_static = 0.05; }, "mem_fraction_static: 0.05"},
      {[](EngineOptions& o) { o.mem_fraction_static = 0.96; }, "mem_fraction_static: 0.96"},
      {[](EngineOptions& o) { o.mem_fraction_static = -1; }, "mem_fraction_static: -1"},
      {[](EngineOptions& o) { o.graphs.split_ops = {"atention"}; }, "cuda_graph_split_ops"},
      {[](EngineOptions& o) { o.graphs.compiler = "fusd"; }, "piecewise_cuda_graph_compiler"},
      {[](EngineOptions& o) { o.model_path = "/nowhere"; }, "/nowhere"},
      {[](EngineOptions& o) {
         o.graphs.piecewise_tokens = {64, 128};
         o.graphs.piecewise_max_tokens = 32;
       },
       "piecewise_cuda_graph_tokens"},
  };
  for (const auto& c : cases) EXPECT_THAT(try_plan(c.change).status().message(), HasSubstr(c.message));
}

TEST(EnginePlan, LaddersFollowTheirOptions) {
  EXPECT_EQ(plan([](EngineOptions& o) { o.chunked_prefill_size = 100; }).runner.prefill_sizes, prefill_ladder(100));
  EXPECT_EQ(plan([](EngineOptions& o) { o.graphs.piecewise_max_tokens = 4096; }).runner.prefill_sizes,
            prefill_ladder(4096));
  EXPECT_EQ(plan([](EngineOptions& o) { o.graphs.schedule = PrefillSchedule::kLegacy; }).runner.prefill_sizes,
            prefill_ladder(2048, PrefillSchedule::kLegacy));
  EXPECT_THAT(plan([](EngineOptions& o) { o.graphs.decode_max_batch = 3; }).runner.decode_sizes, ElementsAre(1, 2, 3));
  EXPECT_EQ(plan([](EngineOptions& o) { o.max_running_requests = 5; }).runner.decode_sizes, decode_ladder(5));
  EXPECT_EQ(plan([](EngineOptions& o) {
              o.max_running_requests = 768;
              o.graphs.decode_max_batch = 768;
            }).runner.decode_sizes,
            decode_ladder(768));
  EXPECT_FALSE(plan([](EngineOptions& o) { o.graphs.disable_cuda_graph_padding = true; }).runner.decode_padding);
}

TEST(EnginePlan, WholePromptsFitAForwardOfTheContext) {
  const EnginePlan whole = plan([](EngineOptions& o) {
    o.chunked_prefill_size = kWholePrompts;
    o.context_length = 300;
  });
  EXPECT_EQ(whole.runner.max_tokens, 300);
  EXPECT_EQ(whole.runner.prefill_sizes, prefill_ladder(300));
}

TEST(EnginePlan, DefaultChunkAndRunningRequestsDependOnTheDevice) {
  DeviceProperties gpu = test::any_gpu();
  gpu.memory_bytes = 80'000'000'000;
  EXPECT_EQ(default_chunk(gpu), 8192);
  EXPECT_EQ(default_running(gpu), 512);
  gpu.memory_bytes = 48'000'000'000;
  EXPECT_EQ(default_chunk(gpu), 4096);
  EXPECT_EQ(default_running(gpu), 256);
  EXPECT_EQ(plan().max_running, 256);
  EXPECT_EQ(plan().runner.max_tokens, default_chunk(cpu()));
  EXPECT_EQ(plan().runner.prefill_sizes, prefill_ladder(default_chunk(cpu())));
}

TEST(EnginePlan, NoMoreRequestsRunThanHaveAState) {
  const auto states = [](const Change& change) {
    return plan([&](EngineOptions& o) {
      o.model_path = kGoldens + "qwen3.5-text";
      change(o);
    });
  };
  EXPECT_EQ(states([](EngineOptions&) {}).max_running, 256) << "they fit";
  // A cache of 4096 tokens gets 2 · 4096 / 1024 = 8 slots, for states and checkpoints together (cache_shares.h). So at
  // most 8 requests have a slot for their state.
  const auto four = [](EngineOptions& o) { o.max_total_tokens = 4096; };
  const EnginePlan p = states(four);
  EXPECT_EQ(p.max_running, 8);
  EXPECT_EQ(p.model.max_requests, 8);
  EXPECT_EQ(p.runner.num_pages.at(0), 8 + 1);
  EXPECT_EQ(p.runner.decode_sizes, decode_ladder(8));
  EXPECT_THAT(p.notes, Contains("8 requests run at once, as many as have room for their states, not 256"));
  const EnginePlan asked = states([&](EngineOptions& o) {
    four(o);
    o.max_running_requests = 20;
  });
  EXPECT_EQ(asked.max_running, 20) << "as it was given";
  EXPECT_THAT(asked.notes, IsEmpty());
}

TEST(EnginePlan, LatentAttentionHasTheUsualPrefillSizes) {
  const auto latent = [](const Change& change) {
    return plan([&](EngineOptions& o) {
      o.model_path = kGoldens + "glm4-moe-lite";
      change(o);
    });
  };
  EnginePlan p = latent([](EngineOptions& o) { o.chunked_prefill_size = 8192; });
  EXPECT_EQ(p.runner.prefill_sizes, prefill_ladder(8192));
  EXPECT_THAT(p.notes, Not(Contains(HasSubstr("latent"))));
  for (const bool enforced : {false, true}) {
    const auto more = [&](const Change& change) {
      return latent([&](EngineOptions& o) {
        o.chunked_prefill_size = 4096;
        o.graphs.enforce_piecewise_cuda_graph = enforced;
        change(o);
      });
    };
    p = more([](EngineOptions& o) { o.graphs.piecewise_max_tokens = 4096; });
    EXPECT_EQ(p.runner.prefill_sizes, prefill_ladder(4096)) << enforced;
    EXPECT_THAT(p.notes, Not(Contains(HasSubstr("latent")))) << enforced;
    p = more([](EngineOptions& o) { o.graphs.piecewise_tokens = {64, 2048, 4096}; });
    EXPECT_THAT(p.runner.prefill_sizes, ElementsAre(64, 2048, 4096)) << enforced;
    EXPECT_THAT(p.notes, Not(Contains(HasSubstr("dropped")))) << enforced;
  }
}

// Registers a family under an architecture for which a rule turns prefill graphs off. Rules look only at the
// architecture's name.
TEST(EnginePlan, AListedArchitectureHasNoPrefillGraphs) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(kGoldens + "llama/config.json");
  config.set("architectures", Json(Json::Array{Json("DeepseekV32ForCausalLM")}));
  folder.write("config.json", config.dump());
  Registry own = built_in_registry();
  ModelFamily family = *own.families.find("LlamaForCausalLM");
  family.architecture = "DeepseekV32ForCausalLM";
  ASSERT_TRUE(own.families.add(family).ok());
  const auto registry = std::make_shared<const Registry>(std::move(own));
  const auto listed = [&](bool enforce) {
    return plan([&](EngineOptions& o) {
      o.registry = registry;
      o.model_path = folder.path() + "/config.json";
      o.load_format = LoadFormat::kDummy;
      o.graphs.enforce_piecewise_cuda_graph = enforce;
    });
  };
  const EnginePlan off = listed(false);
  EXPECT_FALSE(off.runner.graphs.prefill);
  EXPECT_TRUE(off.runner.graphs.decode);
  EXPECT_THAT(off.notes, ElementsAre("Disable piecewise CUDA graph because piecewise_cuda_graph does not support the "
                                     "model architecture: DeepseekV32ForCausalLM"));
  EXPECT_TRUE(listed(true).runner.graphs.prefill);
}

TEST(EnginePlan, TheAutoLadderFollowsKnownCosts) {
  const auto sizes = [](const Change& change) {
    return plan([&](EngineOptions& o) {
             o.graphs.schedule = PrefillSchedule::kAuto;
             change(o);
           })
        .runner.prefill_sizes;
  };
  const std::vector<std::int64_t> cold = auto_ladder(2048, prior_token_cost);
  EXPECT_EQ(sizes([](EngineOptions&) {}), cold);
  EXPECT_EQ(sizes([](EngineOptions& o) { o.known_costs = CostTable(); }), cold) << "nothing was measured";
  CostTable flat;  // sizes up to 1024 tokens cost the same, but the measurement of size 512 was disturbed
  flat.add(RunnerKind::kPrefill, 4, 1);
  flat.add(RunnerKind::kPrefill, 512, 1.001);
  flat.add(RunnerKind::kPrefill, 1024, 1);
  flat.add(RunnerKind::kPrefill, 2048, 3);
  const auto warm = [&](EngineOptions& o) { o.known_costs = flat; };
  EXPECT_EQ(sizes(warm).front(), 1024);
  EXPECT_EQ(sizes(warm).back(), 2048);
  EXPECT_EQ(sizes([&](EngineOptions& o) {
              warm(o);
              o.deterministic = true;
            }),
            cold)
      << "no measurement decides";
  EXPECT_THAT(sizes([](EngineOptions& o) {
                o.graphs.piecewise_tokens = {64, 2048};
              }),
              ElementsAre(64, 2048))
      << "a list is taken as it is";
}

TEST(EnginePlan, SizesThatAreDroppedAreNoted) {
  EnginePlan p = plan([](EngineOptions& o) {
    o.graphs.piecewise_tokens = {64, 128, 2048, 4096};
    o.graphs.piecewise_max_tokens = 2048;
  });
  EXPECT_THAT(p.runner.prefill_sizes, ElementsAre(64, 128, 2048));
  EXPECT_THAT(p.notes, ElementsAre("piecewise_cuda_graph_tokens: 1 sizes above 2048 are dropped"));

  p = plan([](EngineOptions& o) {
    o.graphs.decode_batches = {1, 4, 8};
    o.max_running_requests = 4;
  });
  EXPECT_THAT(p.runner.decode_sizes, ElementsAre(1, 4));
  EXPECT_THAT(p.notes, ElementsAre(HasSubstr("cuda_graph_bs: 1 sizes above 4")));

  p = plan([](EngineOptions& o) { o.graphs.piecewise_tokens = {64, 128}; });
  EXPECT_THAT(p.notes, ElementsAre(AllOf(HasSubstr("128 tokens"), HasSubstr("2048"), HasSubstr("eager"))));

  p = plan([](EngineOptions& o) { o.graphs.piecewise_max_tokens = 4096; });
  EXPECT_THAT(p.notes, ElementsAre(AllOf(HasSubstr("8 prefill sizes above 2048"), HasSubstr("never used"))));
}

TEST(EnginePlan, RulesAppearVerbatimInTheNotes) {
  const EnginePlan off = plan([](EngineOptions& o) { o.graphs.disable_cuda_graph = true; });
  EXPECT_THAT(off.notes, Contains("Disable piecewise CUDA graph because disable_cuda_graph is set"));
  EXPECT_FALSE(off.runner.graphs.prefill || off.runner.graphs.decode);
  const EnginePlan whole = plan([](EngineOptions& o) { o.graphs.mode = GraphMode::kFull; });
  EXPECT_THAT(whole.runner.split_ops, IsEmpty());
  EXPECT_TRUE(whole.runner.graphs.prefill_whole);
  EXPECT_THAT(plan([](EngineOptions& o) {
                o.graphs.split_ops = {"linear", "attention"};
              }).runner.split_ops,
              ElementsAre("linear", "attention"));
}

// The bytes of a page of the llama golden: 3 layers · 2 (keys and values) · 2 heads · 16 values · 4 bytes · 16 tokens.
constexpr std::int64_t kPageBytes = 3 * 2 * 2 * 16 * 4 * 16;

TEST(EnginePlan, PagesAreWhatRequestsCanUseOrMemoryHolds) {
  const auto pages = [](const Change& change, const DeviceProperties& device = cpu()) {
    return plan(change, device).runner.num_pages.at(0);
  };
  // 256 requests of 2048 tokens would take 128 pages each. The default share of 2 GiB holds more than that.
  EXPECT_EQ(pages([](EngineOptions&) {}), 256 * 128 + 1);
  EXPECT_EQ(pages([](EngineOptions& o) { o.max_running_requests = 2; }), 2 * 128 + 1);
  EXPECT_EQ(pages([](EngineOptions& o) {
              o.max_running_requests = 2;
              o.context_length = 33;
            }),
            2 * 3 + 1);
  // Asks for more requests than the default share of 2 GiB holds.
  EXPECT_EQ(pages([](EngineOptions& o) { o.max_running_requests = 100000; }), 2 * kGiB / kPageBytes + 1);
}

}  // namespace
}  // namespace tessera
