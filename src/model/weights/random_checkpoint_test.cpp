// Catches: a random checkpoint of any family, type or layout whose loaded values differ from the dummy weights; tensors
// that Hugging Face's own checkpoints of the architecture do not have; files that contradict their index; a failed
// write that leaves a file.
#include "tessera/model/weights/random_checkpoint.h"

#include <atomic>
#include <fstream>
#include <map>

#include "tessera/base/testing/paths.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using test::expect_error;

constexpr std::uint64_t kSeed = 5;

ModelConfig small(std::string_view architecture, bool tied) {
  Json json = *Json::parse(R"({"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
                               "attention_bias": true, "mlp_bias": true, "hidden_act": "silu",
                               "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16,
                               "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
                               "linear_value_head_dim": 8, "q_lora_rank": 24, "kv_lora_rank": 16,
                               "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_group": 2,
                               "topk_group": 1, "first_k_dense_replace": 1})",
                           "base");
  json.set("architectures", Json(Json::Array{Json(std::string(architecture))})).set("tie_word_embeddings", tied);
  // DeepSeek's families do not accept mlp_bias true.
  if (architecture.starts_with("Deepseek")) json.set("mlp_bias", false);
  // By default Gemma 4 has a table of 262144 rows, which would make up nearly all the data that this test writes.
  if (architecture.starts_with("Gemma4")) json.set("vocab_size_per_layer_input", 352);
  if (architecture.find("VL") != std::string_view::npos) {
    json.set("image_token_id", 60).set("head_dim", 16);
    json.set("rope_scaling", *Json::parse(R"({"rope_type": "default", "mrope_section": [2, 3, 3]})", "rope"));
    json.set("vision_config", *Json::parse(R"({"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
        "out_hidden_size": 64, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1],
        "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1]})",
                                           "tower"));
  }
  if (architecture.starts_with("Qwen2VL"))
    json.set(
        "vision_config",
        *Json::parse(R"({"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14})", "tower"));
  const Result<ModelConfig> config = ModelConfig::from_json(json, "config.json", built_in_families());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.value();
}

std::vector<WeightSpec> weights_of(const ModelConfig& config, ir::DType dtype) {
  return build_model(config, {.dtype = dtype}, built_in_ops(), built_in_families())->weights;
}

// Returns the bytes of every weight, in the order of `specs`.
std::vector<std::string> load(std::span<const WeightSpec> specs, const WeightSource& source) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
  const Result<Weights> weights = Weights::load(specs, source, *device, false);
  EXPECT_TRUE(weights.ok()) << weights.status().to_string();
  std::vector<std::string> all;
  if (!weights.ok()) return all;
  for (const WeightSpec& spec : specs)
    all.emplace_back(reinterpret_cast<const char*>(weights->addresses().at(spec.name).raw()),
                     static_cast<std::size_t>(*ir::size_bytes(spec.type, {})));
  return all;
}

// Checks that a checkpoint written for these weights contains the random weights.
void expect_round_trip(std::span<const WeightSpec> specs, std::int64_t max_shard_bytes) {
  const test::ScratchDir dir;
  const Result<RandomCheckpoint> checkpoint =
      RandomCheckpoint::plan(specs, {.seed = kSeed, .max_shard_bytes = max_shard_bytes});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  std::atomic<std::int64_t> written{0};
  const Status status = checkpoint->write(dir.path(), [&](std::int64_t bytes) {
    written += bytes;
    return ok_status();
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(written, checkpoint->total_bytes());
  const Result<Checkpoint> opened = Checkpoint::open(dir.path());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->total_bytes(), checkpoint->total_bytes());
  EXPECT_EQ(opened->num_files(), checkpoint->files().size());
  EXPECT_EQ(load(specs, checkpoint_source(*Checkpoint::open(dir.path()))), load(specs, dummy_source(kSeed)));
}

TEST(RandomCheckpoint, HoldsTheRandomWeightsOfEveryFamily) {
  for (const ModelFamily& family : built_in_families().all())
    for (const bool tied : {false, true})
      for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16, ir::DType::kFloat16}) {
        SCOPED_TRACE(::testing::Message()
                     << family.architecture << (tied ? ", tied, " : ", ") << ir::dtype_name(dtype));
        const std::vector<WeightSpec> specs = weights_of(small(family.architecture, tied), dtype);
        expect_round_trip(specs, 1'000'000'000);
        if (dtype == ir::DType::kFloat32)
          // One type is enough here, because the same code distributes tensors of all types over files.
          expect_round_trip(specs, 30'000);
      }
}

TEST(RandomCheckpoint, HoldsTheRandomWeightsOfFourBitExperts) {
  const std::string golden = testing::data_path("goldens/gpt-oss-mxfp4");
  const ModelConfig config = *ModelConfig::read(golden, built_in_families());
  const std::vector<WeightSpec> specs = weights_of(config, ir::DType::kBFloat16);
  expect_round_trip(specs, 1'000'000'000);
  expect_round_trip(specs, 30'000);
}

// Plans a checkpoint for the config.json of each checkpoint that Hugging Face's library wrote. The planned checkpoint
// and the library's checkpoint must have the same tensor names and shapes.
TEST(RandomCheckpoint, HasTheTensorsOfPublishedCheckpoints) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::data_path("goldens"))) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename());
    const Checkpoint published = *Checkpoint::open(entry.path().string());
    const ModelConfig config = *ModelConfig::read(entry.path().string(), built_in_families());
    const RandomCheckpoint random = *RandomCheckpoint::plan(weights_of(config, ir::DType::kFloat32), {});
    std::map<std::string, std::vector<std::int64_t>> theirs;
    std::map<std::string, std::vector<std::int64_t>> ours;
    for (const TensorLayout& tensor : random.tensors()) {
      ours[tensor.name] = tensor.shape;
      // find() ignores the prefix "model." if the checkpoint contains only the body, because its names lack this
      // prefix.
      if (const StoredTensor* stored = published.find(tensor.name)) theirs[tensor.name] = stored->shape;
    }
    EXPECT_EQ(ours, theirs);
    // These tensors belong to next-token layers or a vision tower, which the planned text model does not have.
    const std::vector<std::string_view> names = published.names();
    const std::ptrdiff_t unread = std::ranges::count_if(names, [](std::string_view name) {
      return name.starts_with("mtp.") || name.starts_with("model.vision_tower.") ||
             name.starts_with("model.embed_vision.");
    });
    EXPECT_EQ(std::ssize(names) - unread, std::ssize(ours));
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

WeightSpec weight(const char* name, std::vector<WeightPart> parts, ir::DType dtype = ir::DType::kFloat32) {
  std::int64_t elements = 0;
  for (const WeightPart& part : parts) elements += slice_runs(part.shape, part.slice)->num_elements();
  return {.name = name, .type = {dtype, {ir::Dim(elements)}}, .parts = std::move(parts)};
}

TEST(RandomCheckpoint, StoresLayoutsSlicesAndSharedTensors) {
  expect_round_trip(std::vector{weight("conv1d", {{.tensor = "t", .shape = {3, 5}, .storage = TransposedStorage{}}})},
                    1000);
  // The tensor is longer than one write, so that writes end within a stored row.
  expect_round_trip(
      std::vector{weight("long", {{.tensor = "t", .shape = {1537, 2048}, .storage = TransposedStorage{}}})}, 1000);
  // Two weights are slices of one stored tensor.
  expect_round_trip(std::vector{weight("a", {{.tensor = "t", .shape = {4, 6}, .slice = {0, 0, 1}}}),
                                weight("b", {{.tensor = "t", .shape = {4, 6}, .slice = {0, 1, 3}}})},
                    1000);
  // The stacked tensor has two matrices of 5 by 6. The transpose of each of these matrices contains two matrices of 3
  // by 5, whose rows alternate.
  const auto of_stack = [](std::int64_t offset) {
    return WeightPart{
        .tensor = "t",
        .shape = {3, 5},
        .slice = {.dim = 0, .begin = 1, .size = 2},
        .storage = StridedStorage{.tensor_shape = {2, 5, 6}, .offset = offset, .row_stride = 2, .col_stride = 6}};
  };
  expect_round_trip(std::vector{weight("w", {of_stack(0), of_stack(1), of_stack(30), of_stack(31)})}, 1000);
  // Two weights of different types come from one tensor. The tensor is stored in F32, and both weights are rounded from
  // these values.
  const std::vector both = {weight("a", {{.tensor = "t", .shape = {64}}}, ir::DType::kBFloat16),
                            weight("b", {{.tensor = "t", .shape = {64}}}, ir::DType::kFloat16)};
  expect_round_trip(both, 1000);
  EXPECT_EQ(RandomCheckpoint::plan(both, {})->tensors()[0].dtype, StoredDtype::kF32);
}

TEST(RandomCheckpoint, DividesWhereATensorWouldNotFit) {
  const std::vector specs = {
      weight("w", {{.tensor = "a", .shape = {10}}, {.tensor = "b", .shape = {10}}, {.tensor = "c", .shape = {100}}}),
      weight("x", {{.tensor = "d", .shape = {10}}, {.tensor = "a", .shape = {10}}})};
  const RandomCheckpoint checkpoint = *RandomCheckpoint::plan(specs, {.max_shard_bytes = 80});
  std::vector<std::int64_t> bytes;
  for (const RandomCheckpoint::File& file : checkpoint.files()) bytes.push_back(file.bytes);
  EXPECT_THAT(bytes, ::testing::ElementsAre(80, 400, 40));
  EXPECT_EQ(checkpoint.files()[1].name, "model-00002-of-00003.safetensors");
  EXPECT_EQ(checkpoint.total_bytes(), 520);
  EXPECT_EQ(checkpoint.total_elements(), 130);
  expect_round_trip(specs, 80);
}

TEST(RandomCheckpoint, RefusesWeightsWithoutDefinedValues) {
  expect_error(RandomCheckpoint::plan(
                   std::vector{weight(
                       "w", {{.tensor = "q.weight", .shape = {4, 6}, .storage = ScaledStorage{.scale = "q.scale"}}})},
                   {}),
               StatusCode::kUnimplemented, {"q.weight", "quantised", "F32, F16 and BF16"});
  expect_error(RandomCheckpoint::plan(std::vector{weight("v", {{.tensor = "t", .shape = {4, 6}}}),
                                                  weight("w", {{.tensor = "t", .shape = {6, 4}}})},
                                      {}),
               StatusCode::kInvalidArgument, {"t: ", "\"w\"", "[6, 4]", "[4, 6]"});
  expect_error(
      RandomCheckpoint::plan(std::vector{weight("w", {{.tensor = "t", .shape = {1}}})}, {.max_shard_bytes = 0}),
      StatusCode::kInvalidArgument, {"max_shard_bytes: 0"});
  expect_error(RandomCheckpoint::plan({}, {}), StatusCode::kInvalidArgument, {"no weights"});
}

TEST(RandomCheckpoint, LeavesNoFileWhenItIsStopped) {
  const std::vector specs = {weight("w", {{.tensor = "a", .shape = {10}}, {.tensor = "b", .shape = {10}}})};
  const RandomCheckpoint checkpoint = *RandomCheckpoint::plan(specs, {.max_shard_bytes = 40});
  const test::ScratchDir dir;
  int calls = 0;  // the first file is complete when the write of the second file is stopped
  const auto stop = [&](std::int64_t) { return ++calls == 2 ? cancelled("stopped by the test") : ok_status(); };
  expect_error(checkpoint.write(dir.path(), stop), StatusCode::kCancelled, {"stopped by the test"});
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  expect_error(checkpoint.write(dir.path() + "/none", {}), StatusCode::kDataLoss, {"/none/model-00001-of-00002"});
}

}  // namespace
}  // namespace tessera
