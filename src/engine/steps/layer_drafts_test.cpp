// Catches: drafts of a next-token layer that change a request's output; rows, positions or pages of another sequence in
// the layer's forwards; a layer that does not read the tokens of chunked prompts, the tokens of cached prefixes, or the
// tokens after refused drafts; a layer whose drafts are never used; and a draft that another request takes for its own
// last token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/drafts/drafts_test_util.h"

namespace tessera {
namespace {

using test::make_engine;
using test::options_for_drafts;
using test::outputs_of;
using test::plan_of;
using test::request;
using test::sampled;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

EngineOptions options_of(const char* model) { return options_for_drafts(std::string("drafts/") + model); }

EngineOptions with_layer(EngineOptions options, std::int64_t steps = 3) {
  if (!options.drafts.any()) options.drafts.source = DraftSource::kLayer;
  options.drafts.layer_steps = steps;
  return options;
}

class LayerDraftsOf : public ::testing::TestWithParam<const char*> {};

TEST_P(LayerDraftsOf, OutputsAreThoseOfPlainDecodes) {
  std::vector<Request> requests{request(12, 40), request(30, 25, 2), request(1, 30, 3), sampled(14, 40, 1)};
  const std::unique_ptr<Engine> plain = make_engine(options_of(GetParam()));
  for (const std::int64_t steps : {1, 3, 5}) {
    const std::unique_ptr<Engine> drafting = make_engine(with_layer(options_of(GetParam()), steps));
    for (const bool cached : {false, true})
      EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << steps << (cached ? " cached" : "");
    EXPECT_GT(drafting->stats().drafts.drafted, 20) << steps;
  }
}

TEST_P(LayerDraftsOf, PromptsInPartsAndPreemptionChangeNothing) {
  EngineOptions options = options_of(GetParam());
  options.chunked_prefill_size = 16;
  options.max_total_tokens = 160;
  const std::vector<Request> requests{request(40, 40), request(50, 40, 2), request(33, 40, 3)};
  const std::unique_ptr<Engine> plain = make_engine(options);
  const std::unique_ptr<Engine> drafting = make_engine(with_layer(options));
  EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests));
  // In mtp-qwen3.5, state slots limit the running requests before pages do.
  const bool pages_are_short = std::string_view(GetParam()) != "mtp-qwen3.5";
  EXPECT_EQ(drafting->stats().preemptions > 0, pages_are_short);
  EXPECT_GT(drafting->stats().drafts.drafted, 0);
}

// A request with embeddings has no drafts. When a step is collected, this request's newest token is still on the
// device, where the graph of another request's draft overwrites it. After the other request is cancelled, the next step
// is scheduled ahead, and must take the token from the host.
TEST_P(LayerDraftsOf, DraftsOfACancelledRequestReachNoOther) {
  EngineOptions options = with_layer(options_of(GetParam()));
  options.overlap_schedule = true;
  options.drafts.for_all_requests = true;
  const std::unique_ptr<Engine> engine = make_engine(options);
  EXPECT_FALSE(engine->runner().runner(RunnerRole::kDraftDecode).report().captured.empty());
  Request plain{.stop = {.max_new_tokens = 24, .ignore_eos = true}};
  for (std::int64_t i = 0; i < 9 * engine->config().hidden_size; ++i)
    plain.input_embeds.push_back(static_cast<float>(i * 37 % 101 - 50) * 1e-3F);
  const std::vector<TokenId> want = test::run_one(*engine, plain).output_ids;
  for (int steps = 2; steps < 10; ++steps) {
    const RequestId kept = *engine->submit(plain);
    const RequestId drafting = *engine->submit(request(12, 40, steps));
    for (int step = 0; step < steps; ++step) ASSERT_TRUE(engine->step().ok());
    engine->cancel(drafting);
    while (!engine->idle()) ASSERT_TRUE(engine->step().ok());
    EXPECT_EQ(engine->take(kept)->output_ids, want) << steps;
  }
  EXPECT_GT(engine->stats().drafts.drafted, 20);
}

INSTANTIATE_TEST_SUITE_P(Families, LayerDraftsOf, ::testing::Values("mtp-deepseek-v3", "mtp-glm4-moe", "mtp-qwen3.5"),
                         [](const auto& golden) { return std::string(golden.param).substr(4, 4); });

TEST(LayerDrafts, DraftsOfAnotherFolderChangeNothing) {
  for (const char* base : {"llama", "qwen3-moe"}) {
    EngineOptions options = options_of("");
    options.model_path = testing::data_path(std::string("goldens/") + base);
    std::vector<Request> requests{request(12, 40), request(20, 25, 2), request(1, 30, 3), sampled(14, 40, 1)};
    for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(6)};
    const std::unique_ptr<Engine> plain = make_engine(options);
    options.drafts.source = DraftSource::kEagle;
    options.drafts.model_path = testing::data_path(std::string("drafts/") + base + "-eagle3");
    const std::unique_ptr<Engine> drafting = make_engine(with_layer(options));
    for (const bool cached : {false, true})
      EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << base << (cached ? " cached" : "");
    EXPECT_GT(drafting->stats().drafts.drafted, 20) << base;
  }
}

TEST(LayerDrafts, QuantisedDraftsChangeNothing) {
  for (const char* base : {"mtp-qwen3.5", "llama"}) {
    const bool eagle = std::string_view(base) == "llama";
    EngineOptions options = options_of(base);
    if (eagle) options.model_path = testing::data_path("goldens/llama");
    std::vector<Request> requests{request(12, 40), request(20, 25, 2), sampled(14, 40, 1)};
    for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(6)};
    const std::unique_ptr<Engine> plain = make_engine(options);
    if (eagle) {
      options.drafts.source = DraftSource::kEagle;
      options.drafts.model_path = testing::data_path("drafts/llama-eagle3");
    }
    options.drafts.quantization = "int8";
    const std::unique_ptr<Engine> drafting = make_engine(with_layer(options));
    EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << base;
    EXPECT_GT(drafting->stats().drafts.drafted, 20) << base;
    const Result<EnginePlan> plan = plan_of(with_layer(options));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_THAT(plan->facts, Not(Contains(HasSubstr("drafts use the model's own head"))));
    EXPECT_TRUE(std::ranges::any_of(plan->graphs.at_start, [](const WeightAtStart& weight) {
      return weight.module.ends_with("lm_head") && weight.reason.empty();
    })) << base;
  }
}

// The layer's weights are random and the temperature is high, so no drafts are kept. After four requests whose drafts
// were all refused, no other request may draft during the next second. These four requests do not count if the layer
// lacked the keys of their prompts. In the second run it lacks these keys, because requests that never draft (they ask
// for only two tokens) computed the same prompts before.
TEST(LayerDrafts, LackOfKeysEndsNoTrials) {
  const auto varied = [](std::int64_t prompt, std::int64_t new_tokens, std::int32_t seed) {
    Request made = request(prompt, new_tokens, seed);
    made.sampling = {.temperature = 1.5, .seed = seed};  // the text does not repeat itself, so the layer drafts
    return made;
  };
  for (const bool lacks_keys : {false, true}) {
    const std::unique_ptr<Engine> engine = make_engine(with_layer(options_of("mtp-glm4-moe")));
    for (std::int32_t seed = 1; lacks_keys && seed <= 4; ++seed) outputs_of(*engine, {varied(25, 2, seed)});
    for (std::int32_t seed = 1; seed <= 4; ++seed) outputs_of(*engine, {varied(25, 30, seed)});
    EXPECT_EQ(engine->stats().cached_tokens, lacks_keys ? 4 * 24 : 0);
    const std::int64_t drafted = engine->stats().drafts.drafted;
    EXPECT_GT(drafted, 0);
    outputs_of(*engine, {varied(25, 30, 9)});
    EXPECT_EQ(engine->stats().drafts.drafted > drafted, lacks_keys);
  }
}

// The requests may choose only the ids 5 and 400, and the layer can draft only id 5.
TEST(LayerDrafts, FewerIdsChangeNothing) {
  for (const char* model : {"mtp-qwen3.5", "mtp-glm4-moe"}) {
    EngineOptions options = options_of(model);
    std::vector<Request> requests{request(12, 40), request(20, 25, 2), sampled(14, 40, 1)};
    for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(400)};
    const std::unique_ptr<Engine> plain = make_engine(options);
    options.drafts.vocab_size = 64;
    for (const char* quantization : {"", "int8"}) {
      options.drafts.quantization = quantization;
      const std::unique_ptr<Engine> drafting = make_engine(with_layer(options));
      EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << model << quantization;
      EXPECT_GT(drafting->stats().drafts.drafted, 20) << model << quantization;
      const Result<EnginePlan> plan = plan_of(with_layer(options));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const ir::Graph& head = plan->graphs.draft->head;
      EXPECT_EQ(head.value(head.outputs[0]).type.to_string(), "f32[R, 64]") << model << quantization;
    }
  }
}

TEST(LayerDrafts, SizesOfTheDraftsVocabularyAreChecked) {
  EngineOptions options = with_layer(options_of("mtp-qwen3.5"));
  options.drafts.vocab_size = 1 << 20;
  EXPECT_THAT(plan_of(options).status().message(),
              HasSubstr("speculative_draft_vocab_size: 1048576 is not accepted; 1 to "));
  options.drafts.source = DraftSource::kText;
  EXPECT_THAT(plan_of(options).status().message(), HasSubstr("is not accepted without a next-token layer"));
}

// A slot of a recurrent state has memory for at most 3 drafts here. If a model has such states (mtp-qwen3.5), a step's
// drafts from the text are therefore limited to 3 too.
TEST(LayerDrafts, SlotsOfStatesLimitDraftsFromText) {
  for (const auto& [model, most] : {std::pair("mtp-qwen3.5", 3), std::pair("mtp-glm4-moe", 8)}) {
    const Result<EnginePlan> plan = plan_of(with_layer(options_of(model)));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->drafts.most_tokens, most) << model;
    EXPECT_EQ(plan->model.max_drafts, 3) << model;
  }
}

TEST(LayerDrafts, AStoredQuantisedHeadIsKeptAndReported) {
  EngineOptions options = with_layer(options_of(""));
  options.model_path = testing::data_path("gguf/qwen35-mtp");
  options.drafts.quantization = "int8";
  const Result<EnginePlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->facts, Contains(HasSubstr("drafts use the model's own head")));
}

TEST(LayerDrafts, UnknownQuantisationIsRefused) {
  EngineOptions options = with_layer(options_of("mtp-qwen3.5"));
  options.drafts.quantization = "fp9";
  EXPECT_THAT(Engine::create(options).status().message(),
              HasSubstr("speculative_draft_model_quantization: fp9 is not accepted; accepted: fp8, int8, int4, nvfp4"));
  options.drafts.quantization = "fp8";
  options.drafts.source = DraftSource::kText;
  EXPECT_THAT(Engine::create(options).status().message(), HasSubstr("not accepted without a draft layer"));
}

// A layer with random weights drafts the right token about half of the time. If the layer read wrong hidden states,
// tokens, keys or values in one run, different drafts would be right, and the numbers of kept drafts would differ.
TEST(LayerDrafts, DraftsDoNotDependOnTheOtherRequests) {
  const std::vector<Request> requests{request(12, 30), request(20, 30, 2), request(7, 30, 3)};
  std::int64_t alone = 0;
  for (const Request& one : requests) {
    const std::unique_ptr<Engine> engine = make_engine(with_layer(options_of("mtp-glm4-moe")));
    outputs_of(*engine, {one});
    alone += engine->stats().drafts.kept;
  }
  const std::unique_ptr<Engine> together = make_engine(with_layer(options_of("mtp-glm4-moe")));
  outputs_of(*together, requests);
  EXPECT_NEAR(static_cast<double>(together->stats().drafts.kept), static_cast<double>(alone), 3);
}

TEST(LayerDrafts, ModelsWithoutALayerAreRefused) {
  const auto message = [](EngineOptions options) {
    return Engine::create(with_layer(std::move(options))).status().to_string();
  };
  EXPECT_THAT(message(test::small_options()),
              HasSubstr("a next-token layer (MTP) of LlamaForCausalLM is not supported"));
  EngineOptions eagle = test::small_options();
  eagle.drafts.source = DraftSource::kEagle;
  EXPECT_THAT(message(eagle), HasSubstr("EAGLE3 needs speculative_draft_model_path"));
  eagle.drafts.model_path = testing::data_path("drafts/qwen3-moe-eagle3") + "/missing";
  EXPECT_THAT(message(eagle), HasSubstr("speculative_draft_model_path"));
  eagle.drafts.source = DraftSource::kLayer;
  EXPECT_THAT(message(eagle), HasSubstr("is not accepted without speculative_algorithm EAGLE3"));
  EngineOptions steps = options_of("mtp-glm4-moe");
  steps.drafts.layer_steps = 65;
  steps.drafts.source = DraftSource::kLayer;
  EXPECT_THAT(Engine::create(steps).status().to_string(), HasSubstr("speculative_num_steps: 65 is not accepted"));
}

}  // namespace
}  // namespace tessera
