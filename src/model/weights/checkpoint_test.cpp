// Catches: weights of a model folder that are not found, or that come from the wrong shard or from outside of the
// folder; a config that does not fit its weights but is accepted.
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/family.h"
#include "tessera/model/weights/safetensors.h"

#include "tessera/model/config/config.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::expect_error;
using ::testing::ElementsAre;

const std::string kData(64, 'd');

// Writes a shard. Each of the names becomes a float32 vector of two elements.
void write_shard(const test::ScratchDir& dir, const std::string& file, const std::vector<std::string>& names) {
  std::vector<StoredTensor> tensors;
  for (const std::string& name : names)
    tensors.push_back({name, StoredDtype::kF32, {2}, as_bytes(kData).subspan(0, 8)});
  const Status status = write_safetensors(dir.path() + "/" + file, tensors);
  ASSERT_TRUE(status.ok()) << status.message();
}
void write_index(const test::ScratchDir& dir, const std::string& map) {
  dir.write("model.safetensors.index.json", R"({"metadata": {"total_size": 1}, "weight_map": )" + map + "}");
}

TEST(Checkpoint, ReadsOneFile) {
  const test::ScratchDir dir;
  write_shard(dir, "model.safetensors", {"b", "a"});
  dir.write("model.safetensors.index.json", "nonsense, and not read");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint->total_bytes(), 16);
  EXPECT_EQ(checkpoint->num_files(), 1u);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

// Checkpoints of embedding models contain only the body, and their tensor names lack the prefix "model.".
TEST(Checkpoint, FindsTensorsOfABodyWithoutItsPrefix) {
  const test::ScratchDir bare;
  write_shard(bare, "model.safetensors", {"embed_tokens.weight", "norm.weight"});
  const Result<Checkpoint> body = Checkpoint::open(bare.path());
  ASSERT_TRUE(body.ok()) << body.status().message();
  ASSERT_NE(body->find("model.norm.weight"), nullptr);
  EXPECT_EQ(body->find("model.norm.weight"), body->find("norm.weight"));
  EXPECT_TRUE(body->get("model.norm.weight", {2}).ok());
  expect_error(body->get("model.norm.weight", {3}), StatusCode::kInvalidArgument, {"\"norm.weight\": shape is [2]"});
  expect_error(body->get("model.layers.0.weight"), StatusCode::kNotFound, {"\"layers.0.weight\" is missing"});

  const test::ScratchDir whole;
  write_shard(whole, "model.safetensors", {"norm.weight", "model.embed_tokens.weight"});
  const Result<Checkpoint> model = Checkpoint::open(whole.path());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->find("model.norm.weight"), nullptr) << "another tensor's name";
}

TEST(Checkpoint, ReadsShardsByIndex) {
  const test::ScratchDir dir;
  write_shard(dir, "first.safetensors", {"a", "b"});
  write_shard(dir, "second.safetensors", {"c", "unlisted"});
  write_shard(dir, "other.safetensors", {"a"});  // not read, because the map does not name this file
  write_index(dir, R"({"a": "first.safetensors", "c": "second.safetensors", "b": "first.safetensors"})");
  Result<Checkpoint> opened = Checkpoint::open(dir.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const StoredTensor* before = opened->find("c");
  const Checkpoint checkpoint = *std::move(opened);
  EXPECT_EQ(checkpoint.find("c"), before) << "views survive a move";
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c", "unlisted"));
  EXPECT_EQ(checkpoint.num_files(), 2u);
}

TEST(Checkpoint, ReadsShardsByPattern) {
  const test::ScratchDir dir;
  for (int i = 1; i <= 11; ++i) {
    const std::string number = std::to_string(i);
    write_shard(dir, "model-" + std::string(5 - number.size(), '0') + number + "-of-00011.safetensors", {"t" + number});
  }
  dir.write("model-extra.safetensors", "not a shard");
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->names().size(), 11u);

  fs::remove(dir.path() + "/model-00007-of-00011.safetensors");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kNotFound, {dir.path(), "shard 7 of 11"});
  write_shard(dir, "model-00007-of-00012.safetensors", {"x"});
  expect_error(Checkpoint::open(dir.path()), StatusCode::kDataLoss, {"two sets", "-of-00012"});
}

TEST(Checkpoint, RefusesFoldersWithoutWeights) {
  const test::ScratchDir dir;
  expect_error(Checkpoint::open(dir.path() + "/absent"), StatusCode::kNotFound, {"absent"});
  expect_error(Checkpoint::open(dir.path()), StatusCode::kNotFound, {dir.path(), "model.safetensors"});
  dir.write("model.safetensors", "short");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kDataLoss, {dir.path() + "/model.safetensors", "5 bytes"});
}

TEST(Checkpoint, NamesWhatAFolderHasInsteadOfWeights) {
  const test::ScratchDir dir;
  dir.write("pytorch_model.bin", "x");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kNotFound, {"pytorch_model.bin", "safe_serialization=True"});
  dir.write("adapter_config.json", "{}");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kNotFound, {"adapter_config.json", "lora_paths"});
  dir.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kDataLoss, {"model.safetensors", "Git LFS", "git lfs pull"});
}

TEST(Checkpoint, RefusesWrongIndices) {
  const test::ScratchDir dir;
  write_shard(dir, "first.safetensors", {"a", "b"});
  write_shard(dir, "second.safetensors", {"c"});
  write_shard(dir, "again.safetensors", {"a"});
  dir.write("torn.safetensors", test::safetensors_bytes("{\"a\":", 0));
  struct Case {
    const char* map;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {R"({"a": "absent.safetensors"})", StatusCode::kNotFound, {"shard absent.safetensors", "No such file"}},
      {R"({"a": "torn.safetensors"})", StatusCode::kDataLoss, {"torn.safetensors", "JSON"}},
      {R"({"a": "first.safetensors", "c": "first.safetensors", "b": "second.safetensors"})",
       StatusCode::kDataLoss,
       {"\"b\"", "second.safetensors", "first.safetensors"}},
      {R"({"a": "first.safetensors", "z": "first.safetensors"})",
       StatusCode::kDataLoss,
       {"\"z\"", "first.safetensors", "no shard"}},
      {R"({"a": "first.safetensors", "c": "again.safetensors"})",
       StatusCode::kDataLoss,
       {"\"a\"", "two shards", "first.safetensors", "again.safetensors"}},
      {R"({"a": "../first.safetensors"})",
       StatusCode::kInvalidArgument,
       {"\"a\"", "../first.safetensors", "same folder"}},
      {R"({"a": "/etc/x.safetensors"})", StatusCode::kInvalidArgument, {"\"a\"", "/etc/x.safetensors"}},
      {R"({"a": "sub\\x.safetensors"})", StatusCode::kInvalidArgument, {"\"a\""}},
      {R"({"a": "x\u0000.safetensors"})", StatusCode::kInvalidArgument, {"\"a\""}},
      {R"({"a": ".."})", StatusCode::kInvalidArgument, {"\"a\"", ".."}},
      {R"({"a": ""})", StatusCode::kInvalidArgument, {"\"a\""}},
      {R"({"a": "pytorch_model.bin"})", StatusCode::kInvalidArgument, {"\"a\"", "pytorch_model.bin"}},
      {R"({"a": 1})", StatusCode::kInvalidArgument, {"\"a\"", "is in 1"}},
      {R"({})", StatusCode::kInvalidArgument, {"weight_map"}},
      {R"([])", StatusCode::kInvalidArgument, {"weight_map", "[]"}},
      {R"(null)", StatusCode::kInvalidArgument, {"weight_map", "null"}},
      {R"({"a": "first.safetensors")", StatusCode::kInvalidArgument, {"JSON"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.map);
    write_index(dir, c.map);
    expect_error(Checkpoint::open(dir.path()), c.code, c.parts);
  }
  dir.write("model.safetensors.index.json", "{}");
  expect_error(Checkpoint::open(dir.path()), StatusCode::kInvalidArgument, {"index.json", "weight_map", "missing"});
}

TEST(Checkpoint, GetChecksNameShapeAndType) {
  const test::ScratchDir dir;
  const auto bytes = as_bytes(kData);
  const std::vector<StoredTensor> tensors = {
      {"model.layers.0.self_attn.q_proj.weight", StoredDtype::kBF16, {4, 2}, bytes.subspan(0, 16)},
      {"model.layers.0.self_attn.k_proj.weight", StoredDtype::kBF16, {2, 2}, bytes.subspan(0, 8)},
      {"model.norm.weight", StoredDtype::kI32, {2}, bytes.subspan(0, 8)}};
  ASSERT_TRUE(write_safetensors(dir.path() + "/model.safetensors", tensors).ok());
  const Checkpoint checkpoint = *Checkpoint::open(dir.path());
  const Result<StoredTensor> q = checkpoint.get("model.layers.0.self_attn.q_proj.weight", {4, 2});
  ASSERT_TRUE(q.ok()) << q.status().message();
  EXPECT_EQ(q->data.size(), 16u);
  expect_error(checkpoint.get("model.layers.0.self_attn.q_proj.weight", {2, 4}), StatusCode::kInvalidArgument,
               {"model.safetensors", "q_proj.weight", "shape is [4, 2]", "accepted: [2, 4]"});
  expect_error(checkpoint.get("model.layers.0.self_attn.q_proj.weight", {8}), StatusCode::kInvalidArgument,
               {"[4, 2]", "[8]"});
  expect_error(checkpoint.get("model.layers.0.self_attn.v_proj.weight", {2, 2}), StatusCode::kNotFound,
               {dir.path(), "v_proj.weight\" is missing", "k_proj.weight"});
  expect_error(checkpoint.get("x", {2}), StatusCode::kNotFound, {"\"x\" is missing", "none is near"});
  expect_error(checkpoint.get("model.norm.weight", {2}), StatusCode::kUnimplemented,
               {"model.norm.weight", "I32", "BF16"});
}

TEST(GoldenCheckpoints, HaveTheTensorsThatTheirConfigsDescribe) {
  const fs::path goldens = testing::data_path("goldens");
  for (const char* name : {"llama", "llama-bias", "mistral-swa", "qwen2", "qwen3-d128"}) {
    const std::string dir = (goldens / name).string();
    const ModelConfig config = *ModelConfig::read(dir, built_in_families());
    const Checkpoint checkpoint = *Checkpoint::open(dir);
    EXPECT_EQ(checkpoint.total_bytes(),
              2 * parameter_count(build_model(config, {}, built_in_ops(), built_in_families())->weights));
    const auto has = [&](const std::string& tensor, std::initializer_list<std::int64_t> shape) {
      const Result<StoredTensor> got = checkpoint.get(tensor, shape);
      EXPECT_TRUE(got.ok()) << got.status().message();
    };
    has("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
    EXPECT_EQ(checkpoint.find("lm_head.weight") == nullptr, config.tie_word_embeddings);
    const std::string layer = "model.layers.1.";
    has(layer + "self_attn.q_proj.weight", {config.query_size(), config.hidden_size});
    has(layer + "self_attn.k_proj.weight", {config.key_value_size(), config.hidden_size});
    has(layer + "self_attn.o_proj.weight", {config.hidden_size, config.query_size()});
    has(layer + "mlp.down_proj.weight", {config.hidden_size, config.intermediate_size});
    EXPECT_EQ(checkpoint.find(layer + "self_attn.q_proj.bias") != nullptr, config.qkv_bias);
    EXPECT_EQ(checkpoint.find(layer + "self_attn.o_proj.bias") != nullptr, config.o_bias);
    EXPECT_EQ(checkpoint.find(layer + "mlp.up_proj.bias") != nullptr, config.mlp_bias);
    EXPECT_EQ(checkpoint.find(layer + "self_attn.q_norm.weight") != nullptr, config.qk_norm != QkNorm::kNone);
  }
}

}  // namespace
}  // namespace tessera
