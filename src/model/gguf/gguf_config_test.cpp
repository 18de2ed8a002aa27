// Catches: a window of 0 that becomes a window of no tokens; errors that name a field of config.json, which a GGUF file
// does not have; a head of its own that is taken for the embedding; sizes by layer that overflow; a number of blocks
// that keeps the engine busy for minutes.
#include "tessera/model/gguf/gguf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/config/config.h"
#include "tessera/model/family.h"
#include "tessera/model/gguf/gguf_test_util.h"

namespace tessera {
namespace {

using test::GgufBytes;
using test::ScratchDir;
using ::testing::HasSubstr;

// Writes a file with an embedding, the sizes of a small model, and one more key. Returns its path.
std::string small_model(const ScratchDir& dir, const std::string& architecture, const std::string& key,
                        std::uint32_t value, bool with_epsilon = true, bool with_head = false) {
  GgufBytes bytes;
  bytes.start(with_head ? 2 : 1, with_epsilon ? 8 : 7).pair("general.architecture", architecture);
  for (const auto& [name, size] :
       {std::pair("block_count", 2u), std::pair("embedding_length", 64u), std::pair("feed_forward_length", 64u),
        std::pair("attention.head_count", 2u), std::pair("context_length", 64u)})
    bytes.pair(architecture + "." + name, size);
  if (with_epsilon) bytes.key(architecture + ".attention.layer_norm_rms_epsilon", GgufType::kFloat32).put(1e-5F);
  bytes.pair(architecture + "." + key, value);
  bytes.tensor("token_embd.weight", {64, 8}, BlockType::kF32, 0);
  if (with_head) bytes.tensor("output.weight", {64, 8}, BlockType::kF32, 64 * 8 * 4);
  bytes.pad().zeros((with_head ? 2 : 1) * 64 * 8 * 4);
  return dir.write("m.gguf", bytes.string());
}

std::string error_of(const std::string& path, const std::vector<std::string>& overrides = {}) {
  GgufOptions options;
  for (const std::string& text : overrides) options.overrides.push_back(*GgufOverride::parse(text));
  return ModelConfig::read(path, built_in_families(), options).status().message();
}

TEST(GgufConfig, WindowOfZeroIsNoWindow) {
  const ScratchDir dir;
  const std::string path = small_model(dir, "phi3", "attention.sliding_window", 0);
  EXPECT_EQ(gguf_config(*GgufModel::open(path))->find("sliding_window"), nullptr);
  const auto config = ModelConfig::read(path, built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->any_sliding_window());
  EXPECT_TRUE(ModelConfig::read(small_model(dir, "phi3", "attention.sliding_window", 16), built_in_families())
                  ->any_sliding_window());
}

TEST(GgufConfig, AHeadInTheFileIsNotTied) {
  const ScratchDir dir;
  for (const bool with_head : {false, true}) {
    const std::string path = small_model(dir, "gemma3", "attention.key_length", 32, /*with_epsilon=*/true, with_head);
    const auto config = gguf_config(*GgufModel::open(path));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->find("tie_word_embeddings")->as_bool(), !with_head);
  }
}

TEST(GgufConfig, GrowthOfQueriesNeedsYarn) {
  const ScratchDir dir;
  const std::string growth = "mistral3.attention.temperature_scale=float:0.1";
  const std::string yarn = "mistral3.rope.scaling.type=str:yarn";
  const std::string factor = "mistral3.rope.scaling.factor=float:4";
  const std::string path = small_model(dir, "mistral3", "attention.head_count_kv", 2);
  EXPECT_EQ(error_of(path, {growth, yarn, factor}), "");
  EXPECT_THAT(error_of(path, {growth}), HasSubstr("mistral3.rope.scaling.type"));
  EXPECT_THAT(error_of(path, {growth, yarn, factor, "mistral3.attention.clamp_kqv=float:2"}),
              HasSubstr("mistral3.attention.clamp_kqv is 2; accepted: 0"));
  const ScratchDir other;
  EXPECT_THAT(error_of(small_model(other, "llama", "attention.head_count_kv", 2),
                       {"llama.attention.temperature_scale=float:0.1"}),
              HasSubstr("llama.attention.temperature_scale is 0.1; accepted: 0"));
}

TEST(GgufConfig, HugeSizesOfLayersAreErrors) {
  const ScratchDir dir;
  GgufBytes bytes;
  bytes.start(2, 10).pair("general.architecture", "gemma4");
  for (const auto& [name, size] : {std::pair("block_count", 1u), std::pair("embedding_length", 64u),
                                   std::pair("attention.head_count", 2u), std::pair("attention.head_count_kv", 1u),
                                   std::pair("attention.key_length", 32u), std::pair("context_length", 64u)})
    bytes.pair("gemma4." + std::string(name), size);
  bytes.key("gemma4.attention.layer_norm_rms_epsilon", GgufType::kFloat32).put(1e-5F);
  bytes.list("gemma4.attention.sliding_window_pattern", GgufType::kBool, 1).put(std::uint8_t{0});
  bytes.key("gemma4.feed_forward_length", GgufType::kUint64).put(std::uint64_t{1} << 62);
  bytes.tensor("token_embd.weight", {64, 8}, BlockType::kF32, 0);
  bytes.tensor("rope_freqs.weight", {16}, BlockType::kF32, 64 * 8 * 4).pad().zeros(64 * 8 * 4);
  for (int i = 0; i < 16; ++i) bytes.put(1.0F);
  EXPECT_THAT(error_of(dir.write("m.gguf", bytes.string())), HasSubstr("metadata gemma4.feed_forward_length is"));
}

// The number of blocks is checked before each of them is looked for, which would take minutes.
TEST(GgufConfig, ProjectorWithTooManyBlocksIsAnError) {
  const ScratchDir dir;
  const std::string model = small_model(dir, "qwen2vl", "x", 1);
  for (const std::uint32_t blocks : {0u, 257u, 1u << 30}) {
    GgufOptions options;
    options.projector = dir.write("mmproj.gguf", GgufBytes()
                                                     .start(0, 5)
                                                     .pair("general.architecture", "clip")
                                                     .pair("clip.projector_type", "qwen2vl_merger")
                                                     .key("clip.has_vision_encoder", GgufType::kBool)
                                                     .put<std::uint8_t>(1)
                                                     .pair("clip.vision.projection_dim", 64)
                                                     .pair("clip.vision.block_count", blocks)
                                                     .string());
    EXPECT_THAT(ModelConfig::read(model, built_in_families(), options).status().message(),
                HasSubstr(fmt::format("metadata clip.vision.block_count is {}; accepted: 1 to 256", blocks)));
  }
}

TEST(GgufConfig, TooManyRopeFactorsAreAnError) {
  const ScratchDir dir;
  GgufBytes bytes;
  bytes.start(2, 6).pair("general.architecture", "qwen3");
  for (const auto& [name, size] :
       {std::pair("block_count", 2u), std::pair("embedding_length", 64u), std::pair("feed_forward_length", 64u),
        std::pair("attention.head_count", 2u), std::pair("context_length", 64u)})
    bytes.pair("qwen3." + std::string(name), size);
  bytes.tensor("token_embd.weight", {64, 8}, BlockType::kF32, 0);
  bytes.tensor("rope_freqs.weight", {1025}, BlockType::kF32, 64 * 8 * 4).pad().zeros(64 * 8 * 4 + 1025 * 4);
  EXPECT_THAT(error_of(dir.write("m.gguf", bytes.string())),
              HasSubstr("tensor \"rope_freqs.weight\": shape is [1025]; accepted: at most 1024 numbers"));
}

TEST(GgufConfig, EndTokensAreListedOnce) {
  const ScratchDir dir;
  GgufBytes bytes;
  bytes.start(0, 3).pair("tokenizer.ggml.eos_token_id", 1).list("tokenizer.ggml.tokens", GgufType::kString, 3);
  for (const char* text : {"a", "<|im_end|>", "<|im_end|>"}) bytes.text(text);
  bytes.list("tokenizer.ggml.token_type", GgufType::kInt32, 3).put(1).put(3).put(3);
  const auto ends = gguf_end_tokens(*GgufModel::open(dir.write("m.gguf", bytes.string())));
  ASSERT_TRUE(ends.ok()) << ends.status().message();
  EXPECT_THAT(*ends, ::testing::ElementsAre(TokenId(1), TokenId(2)));
}

TEST(GgufConfig, ErrorsNameTheKeysOfTheFile) {
  const ScratchDir dir;
  EXPECT_THAT(error_of(small_model(dir, "qwen3", "x", 1, /*with_epsilon=*/false)),
              HasSubstr("metadata qwen3.attention.layer_norm_rms_epsilon is missing; accepted: a number"));
  const std::string path = small_model(dir, "qwen3", "x", 1);
  EXPECT_EQ(error_of(path), "");
  EXPECT_THAT(error_of(path, {"qwen3.attention.layer_norm_rms_epsilon=float:-1"}),
              HasSubstr("m.gguf: metadata qwen3.attention.layer_norm_rms_epsilon is -1"));
  EXPECT_THAT(error_of(path, {"qwen3.embedding_length=int:0"}), HasSubstr("metadata qwen3.embedding_length is 0"));
  EXPECT_THAT(error_of(path, {"qwen3.rope.freq_base=float:-5"}), HasSubstr("metadata qwen3.rope.freq_base is -5"));
  const std::vector<std::string> sizes = {"deepseek2.attention.key_length_mla=int:48",
                                          "deepseek2.attention.value_length_mla=int:16",
                                          "deepseek2.rope.dimension_count=int:16"};
  EXPECT_THAT(error_of(small_model(dir, "deepseek2", "x", 1), sizes),
              HasSubstr("metadata deepseek2.attention.kv_lora_rank is missing"));
}

// Some architectures write a member from another key than most do.
TEST(GgufConfig, ErrorsNameTheKeyOfTheArchitecture) {
  const ScratchDir dir;
  const std::string mixture = small_model(dir, "gpt-oss", "expert_count", 4);
  EXPECT_THAT(error_of(mixture, {"gpt-oss.expert_used_count=int:2", "gpt-oss.expert_feed_forward_length=int:0"}),
              HasSubstr("metadata gpt-oss.expert_feed_forward_length is 0"));
  const std::string latent = small_model(dir, "deepseek2", "attention.kv_lora_rank", 16);
  const std::vector<std::string> sizes = {"deepseek2.attention.key_length_mla=int:48",
                                          "deepseek2.attention.value_length_mla=int:0",
                                          "deepseek2.rope.dimension_count=int:16"};
  EXPECT_THAT(error_of(latent, sizes), HasSubstr("metadata deepseek2.attention.value_length_mla is 0"));
}

}  // namespace
}  // namespace tessera
