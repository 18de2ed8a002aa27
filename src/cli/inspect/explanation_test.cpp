// Catches: stored measurements or choices of an earlier start that the engine uses but `explain` does not show;
// measurements or choices that `explain` shows but the engine does not use.
#include "tessera/cli/inspect/explanation_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/compile/compiler.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

EngineOptions options_with_choice() {
  EngineOptions options{.model_path = testing::data_path("goldens/llama")};
  options.graphs.piecewise_tokens = {8, 32};
  options.known_costs.emplace().add_full(32, {.ratio = 0.5, .equal = true});
  options.known_costs->add_full(8, {.ratio = 1.5, .equal = true});
  return options;
}

TEST(Explanation, ShowsSizesThatAreReplayedAsOneGraph) {
  const Result<Explanation> e = explain(options_with_choice(), 30, {});
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_THAT(e->full_sizes, ElementsAre(32));
  const std::string text = to_text(*e);
  EXPECT_THAT(text, HasSubstr("as one graph      32\n"));
  EXPECT_THAT(text, HasSubstr("one graph with attention inside was measured to be faster than piecewise graphs"));
  const std::string json = to_json(*e).dump();
  EXPECT_THAT(json, HasSubstr(R"("full_sizes": [32])"));
  EXPECT_THAT(json, HasSubstr(R"("reason": "full_costs_less")"));
  EXPECT_THAT(to_text(*explain(options_with_choice(), 8, {})), HasSubstr("a graph of this size"));
}

TEST(Explanation, SaysWhetherNothingWasChosenOrCanBe) {
  EngineOptions options = options_with_choice();
  options.graphs.mode = GraphMode::kPiecewise;
  EXPECT_THAT(explain(options, 30, {})->full_sizes, IsEmpty());
  options = options_with_choice();
  options.known_costs.reset();
  EXPECT_THAT(to_text(*explain(options, 30, {})), Not(HasSubstr("as one graph")));
}

TEST(Explanation, ShowsChosenSchedulesAndTheirAlternatives) {
  Explanation e = *explain({.model_path = testing::data_path("goldens/llama")}, std::nullopt, {});
  EXPECT_THAT(to_text(e), Not(HasSubstr("Schedules of generated kernels")));
  e.schedules = {{.rows = 64, .measured = {.name = "add, rms_norm", .chosen = 64, .us = {{128, 4}, {64, 3}}}},
                 {.rows = 8, .measured = {.name = "silu, mul", .chosen = 128, .us = {{128, 2}, {64, 2}}}}};
  const std::string text = to_text(e);
  EXPECT_THAT(text, HasSubstr("1 of 2 are the device's own"));
  EXPECT_THAT(text, ::testing::ContainsRegex("add, rms_norm +64 +64 +3[.0]* +128 +4"));
  EXPECT_THAT(to_json(e).dump(), HasSubstr(R"("rows": 64, "chosen": 64, "own": 128, "us": {"128": )"));
}

// Each measurement is stored under its kernel's key. `explain` must show the measurements of the kernels that the model
// uses now, and no other measurements.
TEST(Explanation, ShowsTheSchedulesOfTheModelsKernels) {
  const test::ScratchDir folder;
  EngineOptions options{.model_path = testing::data_path("goldens/llama"), .load_format = LoadFormat::kDummy};
  options.cache_dir = folder.path();
  options.context_length = 64;
  options.max_total_tokens = 256;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1};
  options.graphs.compiler = kFusedCompiler;
  {
    const auto engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    while (*(*engine)->idle_work()) {
    }
  }
  const Result<Explanation> fused = explain(options, std::nullopt, {});
  ASSERT_TRUE(fused.ok()) << fused.status().to_string();
  EXPECT_FALSE(fused->schedules.empty());
  options.graphs.compiler = "eager";
  EXPECT_THAT(explain(options, std::nullopt, {})->schedules, IsEmpty());
}

TEST(Explanation, AVisionModelShowsItsTowersBudgets) {
  const Result<Explanation> e = explain({.model_path = testing::data_path("goldens/qwen3-vl")}, 20, {});
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  ASSERT_TRUE(e->image.has_value());
  EXPECT_EQ(e->image->patches, 80);
  EXPECT_THAT(to_text(*e), ::testing::AllOf(HasSubstr("vision, patches    64 128 "), HasSubstr("vision 128")));
  EXPECT_THAT(to_json(*e).dump(), ::testing::AllOf(HasSubstr(R"("batch": "image")"), HasSubstr(R"("vision": {)")));
  EXPECT_FALSE(explain({.model_path = testing::data_path("goldens/llama")}, 20, {})->image.has_value());
}

TEST(Explanation, ShowsTheLayerThatDrafts) {
  EngineOptions options{.model_path = testing::data_path("goldens/llama")};
  EXPECT_THAT(to_text(*explain(options, std::nullopt, {})), Not(HasSubstr("Drafts\n")));
  options.drafts.source = DraftSource::kText;
  EXPECT_THAT(to_text(*explain(options, std::nullopt, {})),
              HasSubstr("from a request's own text, up to 8 in a step\n"));
  options.drafts.source = DraftSource::kEagle;
  options.drafts.model_path = testing::data_path("drafts/llama-eagle3");
  const Explanation e = *explain(options, std::nullopt, {});
  ASSERT_TRUE(e.draft_layer.has_value());
  EXPECT_EQ(e.draft_layer->head_ids, 320);
  EXPECT_GT(e.draft_layer->own_bytes, e.draft_layer->head_ids * e.plan.config.hidden_size * 2) << "more than its head";
  const std::string text = to_text(e);
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("by the EAGLE-3 layer of "), HasSubstr("320 of 512 ids")));
  const Checkpoint layer = *Checkpoint::open(options.drafts.model_path);
  std::int64_t parameters = 0;
  for (const std::string_view name : layer.names())  // "d2t" and "t2d" have ids, not parameters
    if (name.find("2") == std::string_view::npos) parameters += layer.find(name)->num_elements();
  EXPECT_EQ(e.plan.draft_parameters, parameters);
  EXPECT_EQ(e.plan.parameters, explain({.model_path = options.model_path}, std::nullopt, {})->plan.parameters);
  EXPECT_THAT(text, HasSubstr(fmt::format("{:.1f} M parameters (and {:.1f} M that draft), ",
                                          static_cast<double>(e.plan.parameters) / 1e6,
                                          static_cast<double>(parameters) / 1e6)));
  EXPECT_THAT(to_json(e).dump(), HasSubstr(fmt::format(R"("parameters": {})", parameters)));
  EXPECT_THAT(to_json(e).dump(), ::testing::AllOf(HasSubstr(R"("source": "eagle3")"), HasSubstr(R"("head_ids": 320)")));
}

TEST(Explanation, ShowsTheModelThatDrafts) {
  EngineOptions options{.model_path = testing::data_path("goldens/llama")};
  const MemoryShares plain = explain(options, std::nullopt, {})->plan.memory;
  options.drafts.source = DraftSource::kModel;
  options.drafts.model_path = testing::data_path("goldens/qwen3");
  const Explanation e = *explain(options, std::nullopt, {});
  EXPECT_THAT(to_text(e), ::testing::AllOf(HasSubstr("by the draft model "), HasSubstr("512 of 512 ids")));
  EXPECT_THAT(to_json(e).dump(), HasSubstr(R"("source": "standalone")"));
  const Explanation alone = *explain({.model_path = options.drafts.model_path}, std::nullopt, {});
  ASSERT_TRUE(e.draft_layer.has_value());
  EXPECT_EQ(e.draft_layer->own_bytes, alone.weight_bytes);
  EXPECT_EQ(e.plan.draft_parameters, alone.plan.parameters);
  EXPECT_GT(e.plan.memory.kv_cache * plain.context_tokens, plain.kv_cache * e.plan.memory.context_tokens)
      << "pages also hold the draft's keys and values";
}

TEST(Explanation, ShowsTheTypesOfAGgufFilesTensors) {
  const std::string file = testing::data_path("gguf/qwen3-q4_k_m/golden-Q4_K_M.gguf");
  EngineOptions options{.model_path = file};
  options.metadata_overrides = {*GgufOverride::parse("qwen3.rope.freq_base=float:5e5")};
  const Result<Explanation> e = explain(options, std::nullopt, {});
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  const std::string text = to_text(*e);
  EXPECT_THAT(text, HasSubstr("blk.*.attn_q.weight"));
  EXPECT_THAT(text, HasSubstr("Q4_K × 2"));
  EXPECT_THAT(to_json(*e).dump(), HasSubstr(R"({"name": "blk.0.attn_q.weight", "type": "Q4_K", "shape": [)"));
  EXPECT_THAT(to_json(*e).dump(), HasSubstr("metadata qwen3.rope.freq_base is 500000"));
  EXPECT_THAT(to_json(*explain(options_with_choice(), 30, {})).dump(), Not(HasSubstr("\"tensors\": [")));
}

TEST(Explanation, OverridesNeedAGgufFileAndOneValueEach) {
  EngineOptions options = options_with_choice();
  options.metadata_overrides = {*GgufOverride::parse("a=int:1")};
  EXPECT_THAT(explain(options, std::nullopt, {}).status().message(), HasSubstr("override_kv: a is set, but"));
  options.model_path = testing::data_path("gguf/qwen3-q4_k_m/golden-Q4_K_M.gguf");
  options.metadata_overrides.push_back(options.metadata_overrides.front());
  EXPECT_THAT(explain(options, std::nullopt, {}).status().message(), HasSubstr("override_kv: a is given twice"));
  options.metadata_overrides = {*GgufOverride::parse("qwen3.block_count=str:two")};
  EXPECT_THAT(explain(options, std::nullopt, {}).status().message(),
              HasSubstr("metadata qwen3.block_count is \"two\"; accepted: an integer"));
}

}  // namespace
}  // namespace tessera::cli
