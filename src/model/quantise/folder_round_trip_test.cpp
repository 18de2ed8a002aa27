// Catches: a written GGUF file that is read back as another model, because its metadata, names or order of rows are
// wrong; a part of a model that is lost without an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/family.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/quantise/quantised_output.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string golden_folder(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tests/data/goldens/" + name;
}

std::vector<float> elements_of(const StoredTensor& tensor) {
  std::vector<float> numbers(static_cast<std::size_t>(tensor.num_elements()));
  EXPECT_TRUE(copy_tensor(tensor, StoredDtype::kF32, std::as_writable_bytes(std::span(numbers))).ok());
  return numbers;
}

// Writes the folder's model as a file of the type, and returns the file's path.
std::string written_file(const std::string& folder, const test::ScratchDir& dir, const char* type = "F32") {
  const auto output = plan_quantised(folder, type, built_in_ops(), built_in_families());
  EXPECT_TRUE(output.ok()) << folder << ": " << output.status().to_string();
  if (!output.ok()) return "";
  const std::string file = dir.path() + "/written.gguf";
  const Status status = (*output)->write(file, {});
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_LE(std::filesystem::file_size(file), static_cast<std::uintmax_t>((*output)->file_bytes()));
  return file;
}

void expect_same_moe(const MoeConfig& got, const MoeConfig& want) {
  EXPECT_EQ(got.layers, want.layers);
  EXPECT_EQ(got.num_experts, want.num_experts);
  EXPECT_EQ(got.experts_per_token, want.experts_per_token);
  EXPECT_EQ(got.intermediate_size, want.intermediate_size);
  EXPECT_EQ(got.normalise, want.normalise);
}

void expect_same_gemma4(const Gemma4Config& got, const Gemma4Config& want) {
  EXPECT_EQ(got.global_head_dim, want.global_head_dim);
  EXPECT_EQ(got.global_key_value_heads, want.global_key_value_heads);
  EXPECT_EQ(got.keys_are_values, want.keys_are_values);
  EXPECT_EQ(got.num_shared_layers, want.num_shared_layers);
  EXPECT_EQ(got.double_wide_mlp, want.double_wide_mlp);
  EXPECT_EQ(got.per_layer_input_size, want.per_layer_input_size);
}

void expect_same_rope(const RopeConfig& got, const RopeConfig& want, const ModelConfig& config) {
  const std::vector<float> angles = compute_inv_freq(got, config.head_dim);
  const std::vector<float> wanted = compute_inv_freq(want, config.head_dim);
  ASSERT_EQ(angles.size(), wanted.size());
  for (std::size_t i = 0; i < angles.size(); ++i) EXPECT_NEAR(angles[i], wanted[i], 2e-7F * wanted[i]) << i;
  EXPECT_FLOAT_EQ(attention_scaling(got), attention_scaling(want));
}

void expect_same_config(const ModelConfig& got, const ModelConfig& want) {
  EXPECT_EQ(got.vocab_size, want.vocab_size);
  EXPECT_EQ(got.hidden_size, want.hidden_size);
  EXPECT_EQ(got.intermediate_size, want.intermediate_size);
  EXPECT_EQ(got.num_hidden_layers, want.num_hidden_layers);
  EXPECT_EQ(got.num_attention_heads, want.num_attention_heads);
  EXPECT_EQ(got.num_key_value_heads, want.num_key_value_heads);
  EXPECT_EQ(got.head_dim, want.head_dim);
  EXPECT_EQ(got.max_position_embeddings, want.max_position_embeddings);
  EXPECT_NEAR(got.rms_norm_eps, want.rms_norm_eps, 1e-12);
  EXPECT_EQ(got.unit_offset_norms, want.unit_offset_norms);
  EXPECT_EQ(got.hidden_act, want.hidden_act);
  EXPECT_EQ(got.tie_word_embeddings, want.tie_word_embeddings);
  EXPECT_EQ(got.qkv_bias, want.qkv_bias);
  EXPECT_EQ(got.mlp_bias, want.mlp_bias);
  EXPECT_EQ(got.sliding_windows, want.sliding_windows);
  EXPECT_EQ(got.attention_softcap, want.attention_softcap);
  EXPECT_EQ(got.logit_softcap, want.logit_softcap);
  EXPECT_EQ(got.attention_scale, want.attention_scale);
  EXPECT_EQ(got.embedding_scale, want.embedding_scale);
  expect_same_rope(got.rope, want.rope, want);
  ASSERT_EQ(got.sliding_rope.has_value(), want.sliding_rope.has_value());
  if (want.sliding_rope) expect_same_rope(*got.sliding_rope, *want.sliding_rope, want);
  ASSERT_EQ(got.moe.has_value(), want.moe.has_value());
  if (want.moe) expect_same_moe(*got.moe, *want.moe);
  ASSERT_EQ(got.gemma4.has_value(), want.gemma4.has_value());
  if (want.gemma4) expect_same_gemma4(*got.gemma4, *want.gemma4);
}

// Copies the folder, sets the members of `changes` in the copy's config, and returns the copy's path.
std::string changed_copy(const std::string& folder, const char* changes, const test::ScratchDir& dir) {
  const std::filesystem::path copy = std::filesystem::path(dir.path()) / "model";
  std::filesystem::copy(folder, copy);
  Json config = *Json::read_file((copy / "config.json").string());
  const Json members = *Json::parse(changes, "changes");
  for (const auto& [name, value] : members.as_object()) config.set(name, value);
  std::ofstream(copy / "config.json") << config.dump();
  return copy.string();
}

class FolderRoundTrip : public ::testing::TestWithParam<const char*> {};

void expect_round_trip(const std::string& folder) {
  const test::ScratchDir dir;
  const std::string file = written_file(folder, dir);
  ASSERT_FALSE(file.empty());
  const auto config = ModelConfig::read(file, built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const ModelConfig want = *ModelConfig::read(folder, built_in_families());
  expect_same_config(*config, want);

  const auto read = Checkpoint::open(file);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const Checkpoint original = *Checkpoint::open(folder);
  EXPECT_EQ(read->names(), original.names());
  for (const std::string_view name : original.names()) {
    const StoredTensor* tensor = read->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, original.find(name)->shape) << name;
    const std::vector<float> got = elements_of(*tensor);
    const std::vector<float> wanted = elements_of(*original.find(name));
    ASSERT_EQ(got.size(), wanted.size());
    // A GGUF file stores w + 1 for the norm weights w of some families, and −exp(x) for the values x of A_log. Both
    // conversions round.
    const bool rounded =
        (want.unit_offset_norms && name.find("norm") != std::string_view::npos) || name.ends_with("A_log");
    const float most = rounded ? 1e-6F : 0;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], most) << name << " " << i;
  }
}

TEST_P(FolderRoundTrip, FileHasTheModelOfTheFolder) { expect_round_trip(golden_folder(GetParam())); }

TEST(FolderRoundTripOfGemma3, FileHasTheModelOfTheFolder) {
  const test::ScratchDir dir;
  expect_round_trip(changed_copy(golden_folder("gemma3"), R"({"_sliding_window_pattern": 6, "layer_types":
      ["sliding_attention", "sliding_attention", "sliding_attention"]})",
                                 dir));
}

INSTANTIATE_TEST_SUITE_P(Families, FolderRoundTrip,
                         ::testing::Values("llama", "llama-bias", "llama-linear", "llama-yarn", "llama3-rope-tied",
                                           "llama-d128", "mixtral", "qwen2", "qwen3", "qwen3-moe", "qwen3.5-text",
                                           "gemma2", "gemma4"),
                         [](const auto& golden) {
                           std::string name = golden.param;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

// Compares with a file of the same weights that gguf-py wrote with the names and keys of llama.cpp's converter.
class FileOfGemma4 : public ::testing::TestWithParam<const char*> {};

TEST_P(FileOfGemma4, FileEqualsThatOfAnotherWriter) {
  const test::ScratchDir dir;
  const std::string file = written_file(golden_folder(GetParam()), dir, "BF16");
  ASSERT_FALSE(file.empty());
  const GgufModel got = *GgufModel::open(file);
  const GgufModel want =
      *GgufModel::open(std::string(TESSERA_SOURCE_DIR) + "/tests/data/gguf/" + GetParam() + "/golden.gguf");
  const GgufFile& reference = want.files().front();
  std::size_t sizes = 0;
  for (const std::string_view key : reference.keys()) {
    if (!key.starts_with("gemma4.")) continue;
    ++sizes;
    const GgufValue* value = got.find(key);
    ASSERT_NE(value, nullptr) << key;
    EXPECT_EQ(value->type(), reference.find(key)->type()) << key;
    EXPECT_TRUE(std::ranges::equal(value->bytes(), reference.find(key)->bytes())) << key << " " << value->shown();
  }
  EXPECT_GE(sizes, 20U);
  EXPECT_EQ(got.files().front().tensors().size(), reference.tensors().size());
  for (const GgufTensor& tensor : reference.tensors()) {
    const GgufTensor* written = got.find_tensor(tensor.name);
    ASSERT_NE(written, nullptr) << tensor.name;
    EXPECT_EQ(written->shape, tensor.shape) << tensor.name;
    // The reference has routers in BF16. The converter writes them in F32.
    const bool router = tensor.name.ends_with("ffn_gate_inp.weight");
    EXPECT_EQ(written->type, router ? BlockType::kF32 : tensor.type) << tensor.name;
    EXPECT_TRUE(router || std::ranges::equal(written->data, tensor.data)) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, FileOfGemma4, ::testing::Values("gemma4", "gemma4-e", "gemma4-moe"),
                         [](const auto& golden) {
                           std::string name = golden.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(FolderContent, PoolingIsWritten) {
  const test::ScratchDir dir;
  const std::string file = written_file(golden_folder("qwen3-embedding"), dir);
  ASSERT_FALSE(file.empty());
  const auto embedding = gguf_embedding_config(*GgufModel::open(file));
  ASSERT_TRUE(embedding.ok() && embedding->has_value());
  EXPECT_EQ((*embedding)->pooling, Pooling::kLast);
  EXPECT_EQ(Checkpoint::open(file)->names().front(), "model.embed_tokens.weight");
}

TEST(FolderContent, RefusesByNameWhatFilesCannotSay) {
  const auto refused = [](const char* folder, const char* words) {
    const auto output = plan_quantised(golden_folder(folder), "Q8_0", built_in_ops(), built_in_families());
    ASSERT_FALSE(output.ok()) << folder;
    EXPECT_EQ(output.status().code(), StatusCode::kUnimplemented) << output.status().to_string();
    EXPECT_THAT(output.status().message(), HasSubstr(words));
  };
  refused("olmo2", "architecture Olmo2ForCausalLM as a GGUF file; accepted: LlamaForCausalLM, ");
  refused("mistral-swa", "a window of");
  refused("qwen2-swa", "a window of");
  refused("gpt-oss", "architecture gpt-oss cannot express experts that are not in MXFP4");
  refused("gemma3", "accepted: the family's own order of windows");
}

TEST(FolderContent, RefusesSettingsThatFilesOfGemma4CannotSay) {
  const auto refused = [](const char* changes, const char* words) {
    const test::ScratchDir dir;
    const std::string folder = changed_copy(golden_folder("gemma4"), changes, dir);
    const auto output = plan_quantised(folder, "Q8_0", built_in_ops(), built_in_families());
    ASSERT_FALSE(output.ok()) << changes;
    EXPECT_EQ(output.status().code(), StatusCode::kUnimplemented) << output.status().to_string();
    EXPECT_THAT(output.status().message(), HasSubstr(words));
  };
  refused(R"({"attention_bias": true})", "cannot express attention_bias true");
  refused(R"({"rope_parameters": {"sliding_attention": {"rope_type": "default"},
             "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 8}}})",
          "cannot express the rotation of layers with full attention");
  refused(R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2},
             "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}}})",
          "cannot express the rotation of layers with a window");
}

TEST(FolderContent, TowersAndUnusedKeysAreLeftOutWithNotes) {
  // Layer 2 uses the keys and values of layer 0. Published checkpoints have tensors for them all the same.
  const test::ScratchDir dir;
  const std::string folder = changed_copy(golden_folder("gemma4-e"), "{}", dir);
  const Checkpoint golden = *Checkpoint::open(golden_folder("gemma4-e"));
  std::vector<StoredTensor> tensors;
  for (const std::string_view name : golden.names()) {
    tensors.push_back(*golden.find(name));
    const std::size_t at = name.find("layers.0.self_attn.k_");
    if (at == std::string_view::npos || !name.starts_with("model.language_model.")) continue;
    tensors.push_back(*golden.find(name));
    tensors.back().name.replace(at, 8, "layers.2");
  }
  ASSERT_TRUE(write_safetensors(folder + "/model.safetensors", tensors).ok());
  const auto output = plan_quantised(folder, "Q8_0", built_in_ops(), built_in_families());
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_THAT((*output)->notes(), ::testing::Contains(HasSubstr("2 tensors are left out: their layers use the keys")));
  EXPECT_THAT((*output)->notes(), ::testing::Contains(HasSubstr(" tensors of vision and sound towers are left out")));
  for (const QuantisedTensor& tensor : (*output)->tensors()) EXPECT_FALSE(tensor.name.starts_with("blk.2.attn_k"));
}

// Writes a folder with the bundled model's config and tokenizer but without weights.
std::string without_weights(const test::ScratchDir& dir) {
  const std::string demo = std::string(TESSERA_SOURCE_DIR) + "/models/demo";
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    std::filesystem::copy_file(std::filesystem::path(demo) / name, std::filesystem::path(dir.path()) / name);
  return dir.path();
}

TEST(FolderContent, FolderWithoutWeightsIsAnError) {
  const test::ScratchDir dir;
  const auto output = plan_quantised(without_weights(dir), "Q8_0", built_in_ops(), built_in_families());
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.status().code(), StatusCode::kNotFound) << output.status().to_string();
}

TEST(FolderContent, TensorsThatDoNotFitTheConfigAreErrors) {
  const auto refused = [](const char* changes, StatusCode code, const char* words) {
    const test::ScratchDir dir;
    const std::string folder = changed_copy(golden_folder("qwen3"), changes, dir);
    const auto output = plan_quantised(folder, "Q8_0", built_in_ops(), built_in_families());
    ASSERT_FALSE(output.ok());
    EXPECT_EQ(output.status().code(), code) << output.status().to_string();
    EXPECT_THAT(output.status().message(), HasSubstr(words));
  };
  refused(R"({"intermediate_size": 192})", StatusCode::kInvalidArgument, "model.layers.0.mlp.");
  refused(R"({"num_hidden_layers": 30, "layer_types": null})", StatusCode::kNotFound, "is missing");
}

TEST(FolderContent, UnknownPreTokenizerIsRefused) {
  const test::ScratchDir dir;
  const std::string file = without_weights(dir) + "/tokenizer.json";
  Json json = *Json::read_file(file);
  json.set("pre_tokenizer", *Json::parse(R"({"type": "Metaspace", "replacement": "▁"})", "steps"));
  std::ofstream(file) << json.dump();
  const auto output = plan_quantised(dir.path(), "Q8_0", built_in_ops(), built_in_families());
  ASSERT_FALSE(output.ok());
  EXPECT_THAT(output.status().message(), HasSubstr("tokenizer.json: no name of GGUF files stands for its model"));
}

TEST(FolderContent, DraftLayersAreLeftOutWithANote) {
  const auto output =
      plan_quantised(std::string(TESSERA_SOURCE_DIR) + "/models/demo", "Q4_K_M", built_in_ops(), built_in_families());
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_THAT((*output)->notes(), ::testing::Contains(HasSubstr("tensors of next-token layers are left out")));
  for (const QuantisedTensor& tensor : (*output)->tensors())
    EXPECT_FALSE(tensor.name.starts_with("blk.6.")) << tensor.name;
}

}  // namespace
}  // namespace tessera
