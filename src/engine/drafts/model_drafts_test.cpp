// Catches: drafts of a draft model that change a request's output; a draft model that does not read every token, reads
// a token at a wrong position, or finds the keys and values of other tokens behind a cached prefix; drafts of ids that
// the target model does not have; and an unsuitable draft model that is not refused before weights are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/drafts/drafts_test_util.h"

namespace tessera {
namespace {

using test::make_engine;
using test::options_for_drafts;
using test::outputs_of;
using test::plan_of;
using test::request;
using test::sampled;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

EngineOptions golden_options(const std::string& model) {
  EngineOptions options = options_for_drafts("goldens/" + model);
  options.drafts.for_all_requests = true;
  return options;
}

EngineOptions drafted_by(EngineOptions options, const std::string& draft, std::int64_t steps = 3) {
  options.drafts.source = DraftSource::kModel;
  options.drafts.model_path = testing::data_path(draft);
  options.drafts.layer_steps = steps;
  return options;
}

// If a model is its own draft model and sees the same tokens at the same positions in both roles, its drafts are
// exactly the tokens that it chooses as the target model. Requests sample greedily, because drafts are always the most
// probable tokens.
class DraftsOfItself : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_all_kept(const EngineOptions& options, const std::vector<std::vector<Request>>& rounds,
                       const std::function<void(Engine&)>& check = {}) {
    const std::unique_ptr<Engine> plain = make_engine(options);
    for (const std::int64_t steps : {1, 3, 5}) {
      EngineOptions with = drafted_by(options, std::string("goldens/") + GetParam(), steps);
      with.drafts.most_tokens = 1;
      const std::unique_ptr<Engine> drafting = make_engine(with);
      for (const std::vector<Request>& requests : rounds)
        EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << steps;
      EXPECT_GT(drafting->stats().drafts.drafted, 20) << steps;
      EXPECT_EQ(drafting->stats().drafts.kept, drafting->stats().drafts.drafted) << steps;
      if (check) check(*drafting);
    }
  }
};

TEST_P(DraftsOfItself, AllAreKept) {
  expect_all_kept(golden_options(GetParam()),
                  {{request(12, 40), request(30, 25, 2), request(1, 30, 3), request(14, 40, 4)}});
}

// The second round finds the first round's prompts in the cache. The third round cuts such a prompt within a page or at
// a page's end, and appends another token. In the third round, the last token of the cut prompt is therefore followed
// by another token than when the draft model read it. Texts of 15 tokens do not repeat themselves long enough for
// drafts from the text.
TEST_P(DraftsOfItself, AllAreKeptBehindCachedPrefixes) {
  std::vector<Request> other;
  for (const std::size_t length : {16, 17, 23, 24}) {
    Request made = request(30, 15, 2);
    made.prompt.resize(length);
    made.prompt.emplace_back(static_cast<std::int32_t>(100 + length));
    other.push_back(std::move(made));
  }
  const std::vector<Request> first{request(30, 15, 2), request(33, 15, 5)};
  expect_all_kept(golden_options(GetParam()), {first, first, other},
                  [](Engine& engine) { EXPECT_GT(engine.stats().cached_tokens, 60); });
}

// Requests for two new tokens never draft, so the draft model reads none of the first round's prompts. The last prompt
// has more tokens than one step's forward, so the draft model needs several steps to read them.
TEST_P(DraftsOfItself, AllAreKeptBehindPrefixesOfRequestsWithoutDrafts) {
  EngineOptions options = golden_options(GetParam());
  options.chunked_prefill_size = 32;
  const std::vector<Request> first{request(30, 2, 2), request(33, 2, 5), request(45, 2, 3)};
  const std::vector<Request> second{request(30, 15, 2), request(33, 15, 5), request(45, 15, 3), request(20, 15, 4)};
  expect_all_kept(options, {first, second}, [](Engine& engine) { EXPECT_GT(engine.stats().cached_tokens, 90); });
}

TEST_P(DraftsOfItself, AllAreKeptOfChunkedPromptsAndAfterPreemption) {
  EngineOptions options = golden_options(GetParam());
  options.chunked_prefill_size = 16;
  options.max_total_tokens = 152;
  std::int64_t preemptions = 0;
  expect_all_kept(options, {{request(40, 40), request(50, 40, 2), request(33, 40, 3)}},
                  [&](Engine& engine) { preemptions += engine.stats().preemptions; });
  EXPECT_GT(preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Dense, DraftsOfItself, ::testing::Values("llama", "qwen2", "qwen3", "llama3-rope-tied"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(ModelDrafts, OutputsAreThoseOfPlainDecodes) {
  const std::vector<Request> requests{request(12, 40), request(30, 25, 2), request(1, 30, 3), sampled(14, 40, 1)};
  std::vector<std::string> drafts{"goldens/qwen3", "goldens/llama-d128", "goldens/phi3"};
  // Uses a quantised draft model only on a CPU. On a GPU, most kernels for quantised weights need 16-bit activations,
  // but these tests use float32.
  if (testing::test_device_name() == "cpu") drafts.emplace_back("quantised/llama-ct-w8a8");
  for (const std::string& draft : drafts) {
    const std::unique_ptr<Engine> plain = make_engine(golden_options("llama"));
    const std::unique_ptr<Engine> drafting = make_engine(drafted_by(golden_options("llama"), draft));
    EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << draft;
    EXPECT_GT(drafting->stats().drafts.drafted, 20) << draft;
  }
}

TEST(ModelDrafts, QuantisedDraftsChangeNothing) {
  const std::vector<Request> requests{request(12, 40), request(30, 25, 2)};
  const std::unique_ptr<Engine> plain = make_engine(golden_options("llama"));
  for (const char* draft : {"goldens/llama", "goldens/qwen3"}) {
    EngineOptions options = drafted_by(golden_options("llama"), draft);
    options.drafts.quantization = "int8";
    const std::unique_ptr<Engine> drafting = make_engine(options);
    EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests)) << draft;
    const Result<EnginePlan> plan = plan_of(options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::size_t quantised = 0;
    for (const WeightAtStart& weight : plan->graphs.at_start) {
      EXPECT_TRUE(weight.module.starts_with("draft.")) << weight.module;
      quantised += weight.reason.empty() ? 1 : 0;
    }
    EXPECT_EQ(quantised, 3 * 7 + 1) << draft << ": seven linears in each of three layers, and the head";
  }
}

// The draft model's keys and values are in the target model's pages, whose sizes depend on the cache type. The second
// round finds the first round's prompts in the cache. A model that is its own draft model reads the same rounded keys
// and values in both roles, so all of its drafts are kept.
TEST(ModelDrafts, NarrowCachesChangeNothing) {
  const std::vector<Request> requests{request(12, 40), request(30, 25, 2), request(1, 30, 3), request(40, 15, 4)};
  std::vector<std::string> types{"fp8_e4m3"};
  if (testing::test_device_name() == "cpu") types.emplace_back("int8");  // GPUs have no int8 cache
  for (const std::string& type : types)
    for (const char* draft : {"goldens/llama", "goldens/qwen3"}) {
      EngineOptions options = golden_options("llama");
      options.kv_cache_dtype = type;
      const std::unique_ptr<Engine> plain = make_engine(options);
      options = drafted_by(options, draft);
      options.drafts.most_tokens = 1;
      const std::unique_ptr<Engine> drafting = make_engine(options);
      for (const bool cached : {false, true})
        EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests))
            << type << " by " << draft << (cached ? " cached" : "");
      const auto& drafts = drafting->stats().drafts;
      EXPECT_GT(drafts.drafted, 20) << type << " by " << draft;
      EXPECT_EQ(drafts.kept == drafts.drafted, options.model_path.ends_with(draft)) << type << " by " << draft;
    }
}

// The requests may choose only the ids 5 and 400, and the draft model can draft only id 5.
TEST(ModelDrafts, FewerIdsChangeNothing) {
  std::vector<Request> requests{request(12, 40), request(20, 25, 2)};
  for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(400)};
  const std::unique_ptr<Engine> plain = make_engine(golden_options("llama"));
  EngineOptions options = drafted_by(golden_options("llama"), "goldens/llama3-rope-tied");
  options.drafts.vocab_size = 64;
  const std::unique_ptr<Engine> drafting = make_engine(options);
  EXPECT_EQ(outputs_of(*drafting, requests), outputs_of(*plain, requests));
  const Result<EnginePlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const ir::Graph& head = plan->graphs.draft->head;
  EXPECT_EQ(head.value(head.outputs[0]).type.to_string(), "f32[R, 64]");
}

TEST(ModelDrafts, ParametersOfTheDraftAreNotTheModels) {
  const Result<EnginePlan> plain = plan_of(golden_options("llama"));
  const Result<EnginePlan> drafting = plan_of(drafted_by(golden_options("llama"), "goldens/llama"));
  ASSERT_TRUE(plain.ok() && drafting.ok());
  EXPECT_EQ(drafting->parameters, plain->parameters);
  EXPECT_EQ(drafting->draft_parameters, plain->parameters);
  EXPECT_EQ(plain->draft_parameters, 0);
  EXPECT_EQ(drafting->memory.weights, 2 * plain->memory.weights);
}

TEST(ModelDrafts, LayersFollowTheTargetsInItsPages) {
  const Result<EnginePlan> plan = plan_of(drafted_by(golden_options("gemma3"), "goldens/llama"));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const ir::Graph& draft = plan->graphs.draft->body;
  ASSERT_EQ(draft.cache_groups.size(), plan->graphs.body.cache_groups.size());
  for (const ir::CacheGroup& group : draft.cache_groups) {
    const bool is_full = group.kind == ir::CacheGroup::Kind::kPaged;
    for (const std::int64_t layer : {3, 4, 5}) EXPECT_EQ(std::ranges::count(group.layers, layer), is_full ? 1 : 0);
  }
  for (const ir::ValueId state : draft.states)
    EXPECT_EQ(plan->graphs.body.find_value(draft.value(state).name), nullptr) << draft.value(state).name;
  for (const ir::ValueId weight : draft.weights) EXPECT_TRUE(draft.value(weight).name.starts_with("draft."));
}

// Writes to `folder` the golden's config.json with a vocabulary of `vocab_size` ids, and `tokenizer` as tokenizer.json.
void write_folder(const test::ScratchDir& folder, std::int64_t vocab_size, const std::string& tokenizer) {
  Json config = *Json::read_file(testing::data_path("goldens/llama/config.json"));
  config.set("vocab_size", Json(vocab_size));
  folder.write("config.json", config.dump());
  if (!tokenizer.empty()) folder.write("tokenizer.json", tokenizer);
}

std::string tokenizer_with(const std::string& last) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, ")" + last +
         R"(": 3}, "merges": [["a", "b"]]}})";
}

class DraftVocabularies : public ::testing::Test {
 protected:
  // Plans an engine whose draft model has this vocabulary size and this tokenizer. Weights are random.
  Result<EnginePlan> plan(std::int64_t vocab_size, const std::string& tokenizer) {
    const test::ScratchDir draft;
    write_folder(draft, vocab_size, tokenizer);
    EngineOptions options = test::small_options();
    options.model_path = target.path();
    options.load_format = LoadFormat::kDummy;
    options.drafts = {.source = DraftSource::kModel, .model_path = draft.path()};
    return plan_of(options);
  }
  std::int64_t ids_of(const Result<EnginePlan>& plan) {
    if (!plan.ok()) return -1;
    const ir::Graph& head = plan->graphs.draft->head;
    return *head.value(head.outputs[0]).type.shape.back().constant();
  }
  test::ScratchDir target;
};

TEST_F(DraftVocabularies, PaddedOnesOfOneTokenizerDraftSharedIds) {
  write_folder(target, 512, tokenizer_with("c"));
  EXPECT_EQ(ids_of(plan(512, tokenizer_with("c"))), 512);
  EXPECT_EQ(ids_of(plan(640, tokenizer_with("c"))), 512);
  EXPECT_EQ(ids_of(plan(480, tokenizer_with("c"))), 480);
  EXPECT_EQ(ids_of(plan(640, tokenizer_with("c") + "\n")), 512) << "equal ids in files of different bytes";
  EXPECT_EQ(ids_of(plan(512, "")), 512) << "equal sizes without a tokenizer";
}

TEST_F(DraftVocabularies, OthersAreRefusedByName) {
  write_folder(target, 512, tokenizer_with("c"));
  EXPECT_THAT(plan(512, tokenizer_with("d")).status().message(),
              AllOf(HasSubstr("speculative_draft_model_path"), HasSubstr("the draft model has another tokenizer"),
                    HasSubstr("id 3 is \"c\" in the model's and \"d\" in the draft's")));
  EXPECT_THAT(plan(640, "").status().message(),
              HasSubstr("vocab_size is 640, but the model has 512; without a tokenizer in both folders"));
  EXPECT_THAT(plan(512, "{").status().message(), HasSubstr("tokenizer.json"));
}

TEST(ModelDrafts, WhatDoesNotFitIsRefusedByName) {
  const auto refusal = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options = drafted_by(golden_options("llama"), "goldens/qwen3");
    change(options);
    return plan_of(options).status().message();
  };
  const auto of_draft = [&](const std::string& draft) {
    return refusal([&](EngineOptions& options) { options.drafts.model_path = testing::data_path(draft); });
  };
  EXPECT_THAT(of_draft("missing"), AllOf(HasSubstr("speculative_draft_model_path"), HasSubstr("missing")));
  EXPECT_THAT(of_draft("goldens/qwen3-moe"),
              HasSubstr("Qwen3MoeForCausalLM as a draft model is not supported, because it is a mixture of experts"));
  EXPECT_THAT(of_draft("goldens/mistral-swa"), HasSubstr("because it has sliding windows"));
  EXPECT_THAT(of_draft("goldens/qwen3.5-text"), HasSubstr("because it has recurrent layers"));
  EXPECT_THAT(of_draft("goldens/qwen3-vl"), HasSubstr("because it reads images"));
  EXPECT_THAT(of_draft("goldens/deepseek-v3"), HasSubstr("as a draft model is not supported"));
  EXPECT_THAT(of_draft("goldens/qwen3-reranker"), HasSubstr("is a classifier, which drafts no tokens"));
  EXPECT_THAT(of_draft("drafts/llama-eagle3"), HasSubstr("LlamaForCausalLMEagle3 is a draft layer and no draft model"));
  EXPECT_THAT(of_draft("gguf/qwen35-mtp"), HasSubstr("a GGUF file as a draft model is not supported"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.drafts.model_path = ""; }),
              HasSubstr("speculative_algorithm: STANDALONE needs speculative_draft_model_path"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.drafts.source = DraftSource::kText; }),
              HasSubstr("is not accepted without speculative_algorithm EAGLE3 or STANDALONE"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.pp_size = 2; }),
              HasSubstr("speculative_algorithm: STANDALONE is not supported with a pipeline"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.dp_attention = true; }),
              HasSubstr("not supported with data-parallel attention"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.drafts.quantization = "fp9"; }),
              HasSubstr("speculative_draft_model_quantization: fp9 is not accepted"));
}

TEST(ModelDrafts, FewerPositionsThanTheContextAreNoted) {
  const test::ScratchDir draft;
  Json config = *Json::read_file(testing::data_path("goldens/llama/config.json"));
  config.set("max_position_embeddings", Json(std::int64_t{32}));
  draft.write("config.json", config.dump());
  EngineOptions options = golden_options("llama");
  options.load_format = LoadFormat::kDummy;
  options.drafts.source = DraftSource::kModel;
  options.drafts.model_path = draft.path();
  const Result<EnginePlan> plan = plan_of(options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->notes, Contains(HasSubstr("the draft model has 32 positions and the context 64")));
}

}  // namespace
}  // namespace tessera
