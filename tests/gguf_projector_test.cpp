// Catches: a projector that does not fit its language model and is used all the same; an error that does not name the
// wrong key or tensor; a projector that is chosen although there are several, or not used although it is the only one;
// a language model that cannot compute texts without its projector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "image_golden.h"
#include "image_ways.h"
#include "tessera/base/json.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/images/model_processor.h"
#include "tessera/model/gguf/find_projector.h"
#include "tessera/model/gguf/gguf_test_util.h"

namespace tessera {
namespace {

using testing::data_path;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string model_of(const std::string& name) { return data_path("gguf/" + name) + "/golden-BF16.gguf"; }
std::string projector_of(const std::string& name) { return data_path("gguf/" + name) + "/mmproj-golden-BF16.gguf"; }

// Returns a copy of a projector's bytes in which `to` replaces every occurrence of `from`. Both have the same length.
std::string edited(const std::string& name, const std::string& from, const std::string& to) {
  std::string bytes = *read_text_file(projector_of(name));
  EXPECT_EQ(from.size(), to.size());
  EXPECT_NE(bytes.find(from), std::string::npos) << from;
  for (std::size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size()))
    bytes.replace(at, from.size(), to);
  return bytes;
}

// Returns a copy of a projector's bytes with one more key, whose value is true. A second new key pads the new keys to
// 64 bytes, so that the tensors stay aligned.
std::string with_true(const std::string& name, const std::string& key) {
  test::GgufBytes pairs;
  for (const std::string& each : {key, std::string(38 - key.size(), 'x')})
    pairs.key(each, GgufType::kBool).put<std::uint8_t>(1);
  EXPECT_EQ(pairs.string().size(), 64U);
  std::string bytes = *read_text_file(projector_of(name));
  constexpr std::size_t kPairCount = 16;  // byte offset of the number of keys; the keys follow this number
  bytes[kPairCount] = static_cast<char>(bytes[kPairCount] + 2);
  return bytes.insert(kPairCount + sizeof(std::uint64_t), pairs.string());
}

// Starts an engine with the model and a projector file of these bytes, and returns the error. The start must fail.
std::string refusal(const std::string& model, const std::string& bytes) {
  const test::ScratchDir dir;
  EngineOptions options{.model_path = model_of(model), .projector_path = dir.write("mmproj-edited.gguf", bytes)};
  options.context_length = 256;
  const auto engine = Engine::create(options);
  EXPECT_FALSE(engine.ok());
  return engine.status().message();
}

TEST(GgufProjector, OtherTypesAreRefusedByName) {
  EXPECT_THAT(
      refusal("qwen3-vl", edited("qwen3-vl", "qwen3vl_merger", "qwen9vl_merger")),
      HasSubstr("metadata clip.projector_type is \"qwen9vl_merger\"; accepted: \"qwen3vl_merger\" beside qwen3vl"));
  EXPECT_THAT(refusal("qwen3-vl", *read_text_file(projector_of("qwen2.5-vl"))),
              HasSubstr("is \"qwen2.5vl_merger\"; accepted: \"qwen3vl_merger\""));
  EXPECT_THAT(refusal("qwen3-vl", edited("qwen3-vl", "clip.has_vision_encoder", "clip.has_sounds_encoder")),
              HasSubstr("a projector of audio"));
  EXPECT_THAT(refusal("qwen3-vl", *read_text_file(model_of("qwen3-vl"))),
              HasSubstr("general.architecture is \"qwen3vl\"; accepted: \"clip\""));
}

TEST(GgufProjector, ModelsWithoutImagesHaveNone) {
  const EngineOptions options{.model_path = data_path("gguf/qwen3-q4_0"), .projector_path = projector_of("qwen3-vl")};
  EXPECT_THAT(Engine::create(options).status().message(),
              HasSubstr("a projector beside qwen3 is not supported; accepted: beside qwen2vl, qwen3vl"));
  const EngineOptions folder{.model_path = data_path("goldens/qwen3-vl"), .projector_path = projector_of("qwen3-vl")};
  EXPECT_THAT(Engine::create(folder).status().message(), HasSubstr("is a projector for a model in GGUF files"));
}

TEST(GgufProjector, SizesMustFitTheLanguageModel) {
  const std::string width = "clip.vision.projection_dim";
  const std::string u32("\x04\0\0\0", 4);
  EXPECT_THAT(refusal("qwen3-vl", edited("qwen3-vl", width + u32 + std::string("\x40\0\0\0", 4),
                                         width + u32 + std::string("\x20\0\0\0", 4))),
              HasSubstr("metadata clip.vision.projection_dim is 32; accepted: 64, qwen3vl.embedding_length of"));
  // The language model of qwen3.5-vl has the same hidden size as the edited projector, 32, but it has no deepstack
  // levels.
  EXPECT_THAT(refusal("qwen3.5-vl", edited("qwen3-vl", width + u32 + std::string("\x40\0\0\0", 4),
                                           width + u32 + std::string("\x20\0\0\0", 4))),
              HasSubstr("clip.vision.is_deepstack_layers is 3 of BOOL; accepted: 0 times true"));
  EXPECT_THAT(refusal("qwen3-vl", edited("qwen3-vl", "clip.vision.block_count", "clip.vision.xlock_count")),
              HasSubstr("metadata clip.vision.block_count is missing"));
}

TEST(GgufProjector, MissingTensorsAreNamed) {
  EXPECT_THAT(refusal("qwen3-vl", edited("qwen3-vl", "v.blk.1.ln2.bias", "v.blk.1.ln9.bias")),
              HasSubstr("tensor v.blk.1.ln2.bias is missing; accepted: all tensors of a qwen3vl_merger with 3 blocks"));
  EXPECT_THAT(refusal("qwen2.5-vl", edited("qwen2.5-vl", "v.blk.0.attn_k.weight", "v.blk.0.attn_x.weight")),
              HasSubstr("tensor v.blk.0.attn_k.weight is missing"));
  EXPECT_THAT(refusal("qwen2.5-vl", edited("qwen2.5-vl", "v.patch_embd.weight.1", "v.patch_embd.weight.2")),
              HasSubstr("tensor v.patch_embd.weight.1 is missing"));
}

// Returns a projector's bytes with the names of "ffn_up" and "ffn_down" exchanged in the first block. The file
// stores a name's length before the name. The two names differ in length, so the lengths are exchanged too.
std::string with_exchanged_mlp(const std::string& bytes) {
  const auto name = [](std::string text) {
    text.insert(0, "v.blk.0.ffn_");
    return std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') + text;
  };
  std::string exchanged;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t before = at;
    for (const std::string kind : {".weight", ".bias"}) {
      for (const auto& [from, to] : {std::pair("down", "up"), std::pair("up", "down")}) {
        if (bytes.compare(at, name(from + kind).size(), name(from + kind)) != 0) continue;
        exchanged += name(to + kind);
        at += name(from + kind).size();
      }
    }
    if (at == before) exchanged += bytes[at++];
  }
  EXPECT_EQ(exchanged.size(), bytes.size());
  EXPECT_FALSE(exchanged == bytes);
  return exchanged;
}

// Older converters exchanged the names of an MLP's first and last matrix, whether the MLP was gated or not.
TEST(GgufProjector, ExchangedNamesOfMlpsAreUndone) {
  struct Mlp {
    const char* golden;
    const char* first;
    const char* last;
    std::int64_t size;
    std::int64_t inner;
  };
  for (const Mlp& mlp :
       {Mlp{"gguf/qwen2-vl", "fc1", "fc2", 24, 72}, Mlp{"gguf/qwen2.5-vl", "up_proj", "down_proj", 32, 128}}) {
    const testing::ImageGolden golden = testing::read_image_golden(mlp.golden);
    const auto tensors = [&](const std::string& projector) {
      const Checkpoint checkpoint = *Checkpoint::open(golden.model_path, {.projector = projector});
      const auto bytes = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
        const StoredTensor stored = *checkpoint.get("visual.blocks.0.mlp." + name, shape);
        return std::string(reinterpret_cast<const char*>(stored.data.data()), stored.data.size());
      };
      return std::vector{bytes(mlp.first + std::string(".weight"), {mlp.inner, mlp.size}),
                         bytes(mlp.last + std::string(".weight"), {mlp.size, mlp.inner}),
                         bytes(mlp.first + std::string(".bias"), {mlp.inner}),
                         bytes(mlp.last + std::string(".bias"), {mlp.size})};
    };
    const test::ScratchDir dir;
    const std::string exchanged =
        dir.write("mmproj-exchanged.gguf", with_exchanged_mlp(*read_text_file(golden.projector)));
    EXPECT_TRUE(tensors(exchanged) == tensors(golden.projector)) << mlp.golden;
    EXPECT_EQ(
        ModelConfig::read(golden.model_path, built_in_families(), {.projector = exchanged})->vision->intermediate_size,
        mlp.inner);
  }
}

// The converter writes the language model's hidden size in place of the size of the tower's MLPs. An older version of
// the converter wrote 0. The engine reads neither number.
TEST(GgufProjector, Qwen2VlsMlpHasItsMatrixsSize) {
  const std::string width = "clip.vision.feed_forward_length";
  const std::string u32("\x04\0\0\0", 4);
  const std::string bytes =
      edited("qwen2-vl", width + u32 + std::string("\x20\0\0\0", 4), width + u32 + std::string(4, '\0'));
  const test::ScratchDir dir;
  const auto config =
      ModelConfig::read(model_of("qwen2-vl"), built_in_families(), {.projector = dir.write("mmproj-old.gguf", bytes)});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->architecture, "Qwen2VLForConditionalGeneration");
  EXPECT_EQ(config->vision->intermediate_size, 72);
  EXPECT_THAT(refusal("qwen2-vl", edited("qwen2-vl", "v.blk.0.ffn_up.weight", "v.blk.0.ffn_xx.weight")),
              HasSubstr("tensor v.blk.0.ffn_up.weight is missing; accepted: a matrix of 24 × n · 24 values"));
  EXPECT_THAT(refusal("qwen2-vl", edited("qwen2-vl", "v.blk.1.ffn_up.weight", "v.blk.1.ffn_xx.weight")),
              HasSubstr("tensor v.blk.1.ffn_up.weight is missing"));
  const std::string size = "clip.vision.embedding_length" + u32;
  EXPECT_THAT(
      refusal("qwen2-vl", edited("qwen2-vl", size + std::string("\x18\0\0\0", 4), size + std::string("\x20\0\0\0", 4))),
      HasSubstr("tensor v.blk.0.ffn_up.weight is [72, 24]; accepted: a matrix of 32 × n · 32 values"));
}

TEST(GgufProjector, OtherActivationsOfQwen2VlAreRefused) {
  for (const std::string key : {"clip.use_gelu", "clip.use_silu"})
    EXPECT_THAT(
        refusal("qwen2-vl", with_true("qwen2-vl", key)),
        HasSubstr("metadata " + key + " is true; accepted: false, or no such key: the tower has the quick GELU"));
}

TEST(GgufProjector, TheOnlyOneBesideTheModelIsFound) {
  EXPECT_EQ(find_projector_beside(data_path("gguf/qwen3-vl"))->path, projector_of("qwen3-vl"));
  EXPECT_EQ(find_projector_beside(model_of("qwen3-vl"))->path, projector_of("qwen3-vl"));
  EXPECT_EQ(find_projector_beside(data_path("gguf/qwen3-q4_0"))->path, "");
  EXPECT_EQ(find_projector_beside(data_path("goldens/qwen3-vl"))->path, "");
}

TEST(GgufProjector, SeveralBesideTheModelAreAnError) {
  const test::ScratchDir dir;
  fs::create_symlink(model_of("qwen3-vl"), dir.path() + "/m.gguf");
  for (const char* name : {"/mmproj-F16.gguf", "/mmproj-BF16.gguf"})
    fs::create_symlink(projector_of("qwen3-vl"), dir.path() + name);
  const auto several = find_projector_beside(dir.path());
  EXPECT_EQ(several.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(several.status().message(),
              HasSubstr("2 projectors; accepted: one of them as --mmproj (mmproj-BF16.gguf, mmproj-F16.gguf)"));
  EXPECT_EQ(*find_named_projector(dir.path(), "mmproj-F16.gguf"), dir.path() + "/mmproj-F16.gguf");
  EXPECT_EQ(*find_named_projector(dir.path(), projector_of("qwen3-vl")), projector_of("qwen3-vl"));
  EXPECT_THAT(
      find_named_projector(dir.path(), "mmproj-Q8_0.gguf").status().message(),
      HasSubstr("there is no file mmproj-Q8_0.gguf, and " + dir.path() + " has mmproj-BF16.gguf, mmproj-F16.gguf"));
}

TEST(GgufProjector, AnUnsupportedOneBesideTheModelLeavesTexts) {
  const test::ScratchDir dir;
  fs::create_symlink(model_of("qwen2.5-vl"), dir.path() + "/m.gguf");
  dir.write("mmproj-old.gguf", edited("qwen2.5-vl", "qwen2.5vl_merger", "qwen2vl_merger_x"));
  const auto found = find_projector_beside(dir.path());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->path, "");
  EXPECT_THAT(found->note, HasSubstr("images are refused: "));
  EXPECT_THAT(found->note,
              HasSubstr("\"qwen2vl_merger_x\"; accepted: \"qwen2vl_merger\", \"qwen2.5vl_merger\" beside qwen2vl"));
}

TEST(GgufProjector, SettingsOfImagesComeFromItsMetadata) {
  const ImageProcessorConfig settings = *read_model_processor(model_of("qwen2.5-vl"), projector_of("qwen2.5-vl"));
  EXPECT_EQ(settings.patch_size, 4);
  EXPECT_EQ(settings.merge_size, 2);
  EXPECT_EQ(settings.temporal_patch_size, 2);
  EXPECT_EQ(settings.max_pixels, 12845056);
  EXPECT_NEAR(settings.mean[0], 0.48145466, 1e-7);
  EXPECT_NEAR(settings.std_deviation[2], 0.27577711, 1e-7);
  EXPECT_EQ(read_model_processor(model_of("qwen3-vl"), projector_of("qwen3-vl"))->min_pixels, 256 * 256);
}

// Without the projector file, the model is a language model without a vision tower. A prompt without images must have
// the same logits with and without the projector.
TEST(GgufProjector, TextsDoNotNeedIt) {
  for (const char* name : {"gguf/qwen2-vl", "gguf/qwen2.5-vl", "gguf/qwen3-vl", "gguf/qwen3.5-vl"}) {
    const testing::ImageGolden golden = testing::read_image_golden(name);
    EngineOptions options = testing::options_for(golden);
    Request text{.score = true};
    for (std::int32_t i = 0; i < 40; ++i) text.prompt.emplace_back((i * 37 + 5) % 500);
    const auto seeing = Engine::create(options);
    ASSERT_TRUE(seeing.ok()) << seeing.status().to_string();
    options.projector_path.clear();
    const auto reading = Engine::create(options);
    ASSERT_TRUE(reading.ok()) << reading.status().to_string();
    EXPECT_TRUE((*seeing)->config().vision.has_value()) << name;
    EXPECT_FALSE((*reading)->config().vision.has_value()) << name;
    EXPECT_LE(
        testing::distance(testing::run_one(**reading, text).logits, testing::run_one(**seeing, text).logits).absolute,
        1e-4)
        << name;
  }
}

}  // namespace
}  // namespace tessera
