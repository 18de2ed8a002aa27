// Catches: drafts that change the output of a model that caches latent vectors, and drafts whose keys and values, which
// have a cache group of their own there, are kept in a wrong place.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <random>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/ops/testing/ranks.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using test::make_engine;
using test::outputs_of;
using test::request;
using test::sampled;

constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kVocab = 512;

// Writes an EAGLE-3 layer of random numbers for goldens/deepseek-v3. `folder` must exist.
void write_random_eagle(const std::string& folder) {
  std::mt19937 generator(7);
  std::deque<std::vector<float>> values;
  std::vector<StoredTensor> tensors;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    const std::int64_t columns = shape.size() > 1 ? shape[1] : 1;
    std::normal_distribution<float> number(columns > 1 ? 0.0F : 1.0F, columns > 1 ? 0.2F : 0.1F);
    std::vector<float>& made = values.emplace_back(static_cast<std::size_t>(shape[0] * columns));
    for (float& value : made) value = number(generator);
    tensors.push_back(
        {.name = name, .dtype = StoredDtype::kF32, .shape = std::move(shape), .data = std::as_bytes(std::span(made))});
  };
  add("fc.weight", {kHidden, 3 * kHidden});
  for (const char* norm : {"midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight",
                           "midlayer.post_attention_layernorm.weight", "norm.weight"})
    add(norm, {kHidden});
  add("midlayer.self_attn.q_proj.weight", {4 * 16, 2 * kHidden});
  add("midlayer.self_attn.k_proj.weight", {2 * 16, 2 * kHidden});
  add("midlayer.self_attn.v_proj.weight", {2 * 16, 2 * kHidden});
  add("midlayer.self_attn.o_proj.weight", {kHidden, 4 * 16});
  add("midlayer.mlp.gate_proj.weight", {48, kHidden});
  add("midlayer.mlp.up_proj.weight", {48, kHidden});
  add("midlayer.mlp.down_proj.weight", {kHidden, 48});
  add("lm_head.weight", {kVocab, kHidden});
  ASSERT_TRUE(write_safetensors(folder + "/model.safetensors", tensors).ok());
  std::ofstream(folder + "/config.json") << R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
      "hidden_size": 32, "vocab_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"})";
}

struct LatentTarget {
  const char* name;
  DraftSource source;
  int ranks = 1;
};
void PrintTo(const LatentTarget& of, std::ostream* to) { *to << of.name; }

class LatentTargets : public ::testing::TestWithParam<LatentTarget> {
 protected:
  void SetUp() override {
    if (!testing::has_devices_for(GetParam().ranks)) GTEST_SKIP() << "needs " << GetParam().ranks << " GPUs";
    write_random_eagle(folder_.path());
  }
  static EngineOptions plain() {
    EngineOptions options = test::small_options();
    options.model_path = testing::data_path("goldens/deepseek-v3");
    options.deterministic = true;  // bits of a row do not depend on the number of rows
    options.max_running_requests = 32;
    options.tp_size = GetParam().ranks;
    return options;
  }
  EngineOptions drafting(EngineOptions options) const {
    options.drafts.source = GetParam().source;
    options.drafts.model_path =
        GetParam().source == DraftSource::kEagle ? folder_.path() : testing::data_path("goldens/llama");
    return options;
  }
  // Returns requests with texts of a few different tokens, whose drafts are kept now and then.
  static std::vector<Request> few_tokens() {
    std::vector<Request> requests{request(12, 40), request(20, 25, 2), request(1, 30, 3), sampled(14, 40, 1)};
    for (Request& made : requests) made.sampling.allowed_tokens = {TokenId(5), TokenId(6), TokenId(7)};
    return requests;
  }

  const test::ScratchDir folder_;
};

TEST_P(LatentTargets, OutputsAreThoseOfPlainDecodes) {
  const std::unique_ptr<Engine> plain_engine = make_engine(plain());
  const std::unique_ptr<Engine> drafting_engine = make_engine(drafting(plain()));
  const std::vector<Request> requests = few_tokens();
  for (const bool cached : {false, true})
    EXPECT_EQ(outputs_of(*drafting_engine, requests), outputs_of(*plain_engine, requests)) << (cached ? "cached" : "");
  EXPECT_GT(drafting_engine->stats().drafts.kept, 10);
}

TEST_P(LatentTargets, PromptsInPartsAndPreemptionChangeNothing) {
  EngineOptions options = plain();
  options.chunked_prefill_size = 16;
  options.max_total_tokens = 160;
  const std::vector<Request> requests{request(40, 40), request(50, 40, 2), request(33, 40, 3)};
  const std::unique_ptr<Engine> plain_engine = make_engine(options);
  const std::unique_ptr<Engine> drafting_engine = make_engine(drafting(options));
  EXPECT_EQ(outputs_of(*drafting_engine, requests), outputs_of(*plain_engine, requests));
  EXPECT_GT(drafting_engine->stats().drafts.drafted, 0);
}

TEST_P(LatentTargets, KeysHaveACacheGroupOfTheirOwn) {
  const std::unique_ptr<Engine> engine = make_engine(drafting(plain()));
  const std::unique_ptr<Engine> alone = make_engine(plain());
  EXPECT_EQ(alone->stats().num_cache_groups, 1u);
  EXPECT_EQ(engine->stats().num_cache_groups, 2u);
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (const VerifyRow& row : report->rows) EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
}

INSTANTIATE_TEST_SUITE_P(Sources, LatentTargets,
                         ::testing::Values(LatentTarget{"Eagle", DraftSource::kEagle},
                                           LatentTarget{"Model", DraftSource::kModel},
                                           LatentTarget{"EagleOfTwoRanks", DraftSource::kEagle, 2},
                                           LatentTarget{"ModelOfTwoRanks", DraftSource::kModel, 2}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace tessera
