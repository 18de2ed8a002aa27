// Catches: matrices that are assigned to another module or transposed wrongly; a tensor that is ignored; faulty files
// that are accepted.
#include "tessera/model/adapters/adapter.h"

#include <cmath>
#include <limits>

#include "tessera/base/float16.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kCols = 3;

// A linear that combines q [4, 3] and k [2, 3].
AdapterLayout layout_of(std::int64_t max_rank = 4) {
  AdaptableLinear linear{.weight = "qkv.weight",
                         .cols = kCols,
                         .modules = {{"model.layers.0.q_proj", 4, kCols}, {"model.layers.0.k_proj", 2, kCols}},
                         .ranges = {{0, 0, 4}, {1, 0, 2}}};
  return *AdapterLayout::create({{linear}}, 0, {.slots = 2, .max_rank = max_rank}, ir::DType::kFloat32);
}

// Builds an adapter's folder. The tensor that add() adds contains the numbers first, first + 1, …

class Folder {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape, float first) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    std::vector<float>& values = values_.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
    tensors_.push_back({.name = name, .dtype = StoredDtype::kF32, .shape = std::move(shape), .data = {}});
  }
  void add_pair(const std::string& module, std::int64_t rows, std::int64_t rank, float first) {
    add("base_model.model." + module + ".lora_A.weight", {rank, kCols}, first);
    add("base_model.model." + module + ".lora_B.weight", {rows, rank}, first + 100);
  }
  std::vector<float>& values(std::size_t tensor) { return values_[tensor]; }

  Result<std::shared_ptr<const Adapter>> load(const AdapterLayout& layout, const std::string& settings = "") {
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = std::as_bytes(std::span(values_[i]));
    EXPECT_TRUE(write_safetensors(dir_.path() + "/adapter_model.safetensors", tensors_).ok());
    dir_.write("adapter_config.json", R"({"r": 2, "lora_alpha": 6)" + settings + "}");
    static const std::unique_ptr<Device> device = testing::distant_device({});
    return Adapter::load(dir_.path(), layout, *device);
  }
  const ScratchDir& dir() const { return dir_; }

 private:
  ScratchDir dir_;
  std::vector<std::vector<float>> values_;
  std::vector<StoredTensor> tensors_;
};

std::vector<float> floats(const AdapterShare& share, std::size_t offset, std::size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), share.bytes().data() + offset, count * sizeof(float));
  return values;
}

TEST(Adapter, PlacesMatricesByModule) {
  Folder folder;
  folder.add_pair("model.layers.0.k_proj", 2, 1, 50);
  folder.add_pair("model.layers.0.q_proj", 4, 2, 0);
  const auto adapter = folder.load(layout_of(), R"(, "rank_pattern": {"k_proj": 1})");
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const AdapterShare& share = (*adapter)->share(0);
  const AdapterLinearPart& part = share.linears()[0];
  EXPECT_EQ(part.ranks, (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(part.scales, (std::vector<float>{3, 6}));
  EXPECT_EQ(part.most_rank, 2);
  EXPECT_EQ((*adapter)->rank(), 2);
  EXPECT_EQ(floats(share, part.a_offset, 9), (std::vector<float>{0, 1, 2, 3, 4, 5, 50, 51, 52}));
  // B is stored transposed, as two rows, because the largest LoRA rank is 2. Each row has q's four values, then k's two
  // values. k's LoRA rank is 1, so its values in the second row are zeros.
  EXPECT_EQ(floats(share, part.b_offset, 12),
            (std::vector<float>{100, 102, 104, 106, 150, 151, 101, 103, 105, 107, 0, 0}));
}

TEST(Adapter, RefusesValuesThatOverflowTheModelsType) {
  AdaptableLinear linear{
      .weight = "q.weight", .cols = kCols, .modules = {{"model.layers.0.q_proj", 4, kCols}}, .ranges = {{0, 0, 4}}};
  const AdapterLayout layout = *AdapterLayout::create({{linear}}, 0, {.slots = 2, .max_rank = 4}, ir::DType::kFloat16);
  for (const std::size_t tensor : {0, 1}) {
    Folder folder;
    folder.add_pair("model.layers.0.q_proj", 4, 2, 0);
    ASSERT_TRUE(folder.load(layout).ok());
    folder.values(tensor)[5] = 7e4F;
    expect_error(folder.load(layout), StatusCode::kInvalidArgument,
                 {"adapter_model.safetensors", "value 5 of tensor", tensor == 0 ? "lora_A" : "lora_B", "is inf"});
  }
}

// A layout for two tensor-parallel ranks. q is split by rows, o by columns.
AdapterLayout layout_of_ranks() {
  const auto of_rank = [](std::int64_t rank) {
    AdaptableLinear q{.weight = "q.weight",
                      .cols = kCols,
                      .modules = {{"model.layers.0.q_proj", 4, kCols}},
                      .ranges = {{0, 2 * rank, 2}}};
    AdaptableLinear o{.weight = "o.weight",
                      .cols = rank == 0 ? 2 : 1,
                      .first_col = 2 * rank,
                      .modules = {{"model.layers.0.o_proj", 4, kCols}},
                      .ranges = {{0, 0, 4}}};
    return std::vector{q, o};
  };
  return *AdapterLayout::create({of_rank(0), of_rank(1)}, 0, {.slots = 2, .max_rank = 4}, ir::DType::kFloat32);
}

TEST(Adapter, CutsAShareForEachRank) {
  Folder folder;
  folder.add_pair("model.layers.0.q_proj", 4, 2, 0);
  folder.add_pair("model.layers.0.o_proj", 4, 2, 10);
  const auto adapter = folder.load(layout_of_ranks());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  ASSERT_EQ((*adapter)->num_shares(), 2u);
  const AdapterShare& share = (*adapter)->share(1);
  const AdapterLinearPart& q = share.linears()[0];
  EXPECT_EQ(floats(share, q.a_offset, 6), (std::vector<float>{0, 1, 2, 3, 4, 5})) << "all of A";
  EXPECT_EQ(floats(share, q.b_offset, 4), (std::vector<float>{104, 106, 105, 107})) << "its rows of B";
  const AdapterLinearPart& o = share.linears()[1];
  EXPECT_EQ(floats(share, o.a_offset, 2), (std::vector<float>{12, 15})) << "its column of A";
  EXPECT_EQ(floats(share, o.b_offset, 8), (std::vector<float>{110, 112, 114, 116, 111, 113, 115, 117})) << "all of B";
}

TEST(Adapter, LeavesOtherModulesUnchanged) {
  Folder folder;
  folder.add_pair("model.layers.0.k_proj", 2, 2, 0);
  const auto adapter = folder.load(layout_of());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ((*adapter)->share(0).linears()[0].ranks, (std::vector<std::int32_t>{0, 2}));
}

TEST(Adapter, RefusesMatricesThatDoNotFit) {
  const auto error = [](std::int64_t rows, std::int64_t rank, std::int64_t max_rank,
                        const std::vector<std::string>& parts) {
    Folder folder;
    folder.add_pair("model.layers.0.q_proj", rows, rank, 0);
    expect_error(folder.load(layout_of(max_rank)), StatusCode::kInvalidArgument, parts);
  };
  error(5, 2, 4, {"q_proj", "[5, 2]", "[4, rank]", "another model"});
  error(4, 2, 1, {"q_proj", "rank 2", "at most 1", "max_lora_rank"});
  error(4, 3, 4, {"q_proj", "rank 3", "says 2"});
}

TEST(Adapter, RefusesEveryTensorThatItDoesNotUse) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"base_model.model.model.layers.0.q_proj.lora_magnitude_vector", "DoRA"},
      {"base_model.model.model.layers.0.k_proj.base_layer.weight", "a whole matrix"},
      {"base_model.model.model.layers.0.q_proj.lora_B.bias", "bias"},
      {"base_model.model.score.weight", "neither A nor B"}};
  for (const auto& [name, what] : kRefused) {
    Folder folder;
    folder.add_pair("model.layers.0.q_proj", 4, 2, 0);
    folder.add(name, {2}, 0);
    expect_error(folder.load(layout_of()), StatusCode::kUnimplemented, {name, what});
  }
  Folder unknown;
  unknown.add_pair("model.layers.0.fc1", 4, 2, 0);
  expect_error(unknown.load(layout_of()), StatusCode::kInvalidArgument, {"model.layers.0.fc1", "k_proj, q_proj"});
}

TEST(Adapter, RefusesHalvesAndDoublesOfPairs) {
  Folder half;
  half.add("base_model.model.model.layers.0.q_proj.lora_A.weight", {2, kCols}, 0);
  expect_error(half.load(layout_of()), StatusCode::kInvalidArgument, {"q_proj", "lora_A and no lora_B"});
  Folder twice;
  twice.add_pair("model.layers.0.q_proj", 4, 2, 0);
  twice.add("model.layers.0.q_proj.lora_A.weight", {2, kCols}, 0);
  expect_error(twice.load(layout_of()), StatusCode::kInvalidArgument, {"belong to the same module"});
  Folder two_names;
  two_names.add_pair("model.layers.0.q_proj", 4, 2, 0);
  two_names.add_pair("model.language_model.layers.0.q_proj", 4, 2, 0);
  expect_error(two_names.load(layout_of()), StatusCode::kInvalidArgument, {"two names"});
}

// An embedding with 3 ids and 4 values for each id, and a head that shares its table.
AdapterLayout layout_of_ends() {
  const AdaptableLinear embedding{.weight = "embed.weight",
                                  .embeds = true,
                                  .factor = 5,
                                  .cols = kCols,
                                  .modules = {{"model.embed_tokens", 4, kCols}},
                                  .ranges = {{0, 0, 4}}};
  const AdaptableLinear head{
      .weight = "embed.weight", .cols = kCols, .modules = {{"lm_head", 4, kCols}}, .ranges = {{0, 0, 4}}};
  return *AdapterLayout::create({{embedding, head}}, 0, {.max_rank = 4, .targets = {"lm_head", "embed_tokens"}},
                                ir::DType::kFloat32);
}

TEST(Adapter, ReadsEmbeddingAndHead) {
  Folder folder;
  folder.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, kCols}, 0);
  folder.add("base_model.model.model.embed_tokens.lora_embedding_B", {4, 2}, 10);
  folder.add("base_model.model.model.embed_tokens.base_layer.weight", {kCols, 4}, 0);
  folder.add_pair("lm_head", 4, 2, 50);
  const auto adapter = folder.load(layout_of_ends());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const AdapterShare& share = (*adapter)->share(0);
  EXPECT_EQ(share.linears()[0].scales, (std::vector<float>{15})) << "alpha / rank, and the embedding's factor";
  EXPECT_EQ(share.linears()[1].scales, (std::vector<float>{3}));
  EXPECT_EQ(floats(share, share.linears()[0].a_offset, 6), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(floats(share, share.linears()[0].b_offset, 8), (std::vector<float>{10, 12, 14, 16, 11, 13, 15, 17}));
  EXPECT_EQ(floats(share, share.linears()[1].a_offset, 1), (std::vector<float>{50}));
}

TEST(Adapter, RefusesAnEmbeddingsMatricesForALinear) {
  Folder folder;
  folder.add("lm_head.lora_embedding_A", {2, kCols}, 0);
  folder.add("lm_head.lora_embedding_B", {4, 2}, 0);
  expect_error(folder.load(layout_of_ends()), StatusCode::kInvalidArgument, {"lm_head", "a linear of the model"});
  Folder mixed;
  mixed.add("lm_head.lora_A.weight", {2, kCols}, 0);
  mixed.add("lm_head.lora_embedding_B", {4, 2}, 0);
  expect_error(mixed.load(layout_of_ends()), StatusCode::kInvalidArgument, {"lm_head"});
}

// Two ranks, each with a part of the ids of an embedding [3 ids, 4 values] and of a head [3, 4]. Rank 0 has ids 0
// and 1.
AdapterLayout layout_of_saved(AdapterLimits limits = {.max_rank = 4, .saved = {"lm_head", "embed_tokens"}}) {
  const auto of_rank = [](std::int64_t rank) {
    const std::int64_t ids = 2 - rank;
    AdaptableLinear embedding{.weight = "embed.weight",
                              .embeds = true,
                              .factor = 5,
                              .cols = ids,
                              .first_col = 2 * rank,
                              .modules = {{"model.embed_tokens", 4, 3}},
                              .ranges = {{0, 0, 4}}};
    AdaptableLinear head{
        .weight = "head.weight", .cols = 4, .modules = {{"lm_head", 3, 4}}, .ranges = {{0, 2 * rank, ids}}};
    return std::vector{embedding, head};
  };
  return *AdapterLayout::create({of_rank(0), of_rank(1)}, 0, std::move(limits), ir::DType::kFloat32);
}
constexpr const char* kSavedTable = "base_model.model.model.embed_tokens.weight";
constexpr const char* kSavedHead = "base_model.model.lm_head.weight";

TEST(Adapter, CutsWholeMatricesForEachRank) {
  Folder folder;
  folder.add(kSavedTable, {3, 4}, 0);
  folder.add(kSavedHead, {3, 4}, 20);
  const auto adapter = folder.load(layout_of_saved(), R"(, "modules_to_save": ["model.embed_tokens", "lm_head"])");
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const AdapterShare& first = (*adapter)->share(0);
  EXPECT_EQ(first.linears()[0].ranks, (std::vector<std::int32_t>{4}));
  EXPECT_EQ(first.linears()[1].ranks, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(floats(first, first.linears()[0].a_offset, 8), (std::vector<float>{0, 5, 10, 15, 20, 25, 30, 35}))
      << "two rows of the table, times the embedding's factor";
  EXPECT_EQ(floats(first, first.linears()[1].a_offset, 8), (std::vector<float>{20, 21, 22, 23, 24, 25, 26, 27}));
  const AdapterShare& second = (*adapter)->share(1);
  EXPECT_EQ(floats(second, second.linears()[0].a_offset, 4), (std::vector<float>{40, 45, 50, 55}));
  EXPECT_EQ(floats(second, second.linears()[1].a_offset, 4), (std::vector<float>{28, 29, 30, 31}));
  EXPECT_EQ((*adapter)->rank(), 0);
}

// The model multiplies its own embedding by the factor after rounding the factor to the model's type: 62, not 61.97.
TEST(Adapter, RoundsAnEmbeddingsFactorAsTheModelDoes) {
  const AdaptableLinear embedding{.weight = "embed.weight",
                                  .embeds = true,
                                  .factor = 61.97,
                                  .cols = 1,
                                  .modules = {{"model.embed_tokens", 1, 1}},
                                  .ranges = {{0, 0, 1}}};
  Folder folder;
  folder.add(kSavedTable, {1, 1}, 1);
  const auto adapter =
      folder.load(*AdapterLayout::create({{embedding}}, 0, {.saved = {"embed_tokens"}}, ir::DType::kBFloat16));
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  BFloat16 value;
  std::memcpy(&value, (*adapter)->share(0).bytes().data(), sizeof(value));
  EXPECT_EQ(to_float(value), 62);
}

TEST(Adapter, RefusesWholeMatricesThatDoNotFit) {
  const auto error = [](Folder& folder, StatusCode code, const std::vector<std::string>& parts,
                        const std::string& settings = "", AdapterLimits limits = {.saved = {"lm_head"}}) {
    expect_error(folder.load(layout_of_saved(std::move(limits)), settings), code, parts);
  };
  Folder head;
  head.add(kSavedHead, {3, 4}, 0);
  error(head, StatusCode::kInvalidArgument, {"lm_head", "lora_modules_to_save", "embed_tokens"}, "",
        {.saved = {"embed_tokens"}});
  error(head, StatusCode::kInvalidArgument, {"lm_head", "lora_modules_to_save", "none"}, "", {.targets = {"lm_head"}});
  error(head, StatusCode::kUnimplemented, {"ensure_weight_tying", "lm_head"}, R"(, "ensure_weight_tying": true)");
  error(head, StatusCode::kUnimplemented, {"modules_to_save", "score"}, R"(, "modules_to_save": ["score"])");
  error(head, StatusCode::kInvalidArgument, {"modules_to_save", "embed_tokens", "no such matrix"},
        R"(, "modules_to_save": ["lm_head", "embed_tokens"])");
  Folder larger;
  larger.add(kSavedHead, {5, 4}, 0);
  error(larger, StatusCode::kInvalidArgument, {"lm_head", "[5, 4]", "[3, 4]", "added tokens"});
  Folder both;
  both.add(kSavedHead, {3, 4}, 0);
  both.add("base_model.model.lm_head.lora_A.weight", {2, 4}, 0);
  both.add("base_model.model.lm_head.lora_B.weight", {3, 2}, 0);
  error(both, StatusCode::kInvalidArgument, {"lm_head", "both"});
  Folder infinite;
  infinite.add(kSavedHead, {3, 4}, 0);
  infinite.values(0)[6] = std::numeric_limits<float>::infinity();
  error(infinite, StatusCode::kInvalidArgument, {"adapter_model.safetensors", "row 1", kSavedHead, "inf"});
  Folder two;
  two.add(kSavedHead, {3, 4}, 0);
  two.add("base_model.model.lm_head.modules_to_save.default.weight", {3, 4}, 0);
  error(two, StatusCode::kInvalidArgument, {"lm_head", "two tensors"});
}

// Two experts of intermediate size 1 and hidden size 3, one on each rank.
AdapterLayout layout_of_experts() {
  const auto of_rank = [](std::int64_t e) {
    const std::string prefix = "model.layers.0.mlp.experts." + std::to_string(e) + ".";
    AdaptableLinear gate_up{
        .weight = "gate_up.weight",
        .experts = 2,
        .cols = kCols,
        .modules = {{.name = prefix + "gate_proj", .rows = 1, .cols = kCols, .expert = e, .stack_row = 0},
                    {.name = prefix + "up_proj", .rows = 1, .cols = kCols, .expert = e, .stack_row = 1}},
        .ranges = {{0, 0, 1}, {1, 0, 1}}};
    AdaptableLinear down{.weight = "down.weight",
                         .experts = 2,
                         .cols = 1,
                         .modules = {{.name = prefix + "down_proj", .rows = kCols, .cols = 1, .expert = e}},
                         .ranges = {{0, 0, kCols}}};
    return std::vector{gate_up, down};
  };
  return *AdapterLayout::create({of_rank(0), of_rank(1)}, 0, {.max_rank = 4, .targets = {"experts"}},
                                ir::DType::kFloat32);
}

TEST(Adapter, CutsStacksOfExperts) {
  Folder folder;
  const std::string stack = "base_model.model.model.layers.0.mlp.experts.";
  // The LoRA rank is 2, so A has two rows for expert 0, then two rows for expert 1.
  folder.add(stack + "base_layer.lora_A.weight", {4, kCols}, 0);
  // B has one row for gate and one for up. Each row of B has column 0 for expert 0, column 0 for expert 1, then column
  // 1 for expert 0 and column 1 for expert 1.
  folder.add(stack + "base_layer.lora_B.weight", {2, 4}, 100);
  folder.add(stack + "lora_A.weight", {4, 1}, 200);
  folder.add(stack + "lora_B.weight", {kCols, 4}, 300);
  const auto adapter = folder.load(layout_of_experts());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const AdapterShare& share = (*adapter)->share(1);
  const AdapterLinearPart& gate_up = share.linears()[0];
  EXPECT_EQ(gate_up.ranks, (std::vector<std::int32_t>{2, 2}));
  EXPECT_EQ(floats(share, gate_up.a_offset, 12), (std::vector<float>{6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(floats(share, gate_up.b_offset, 4), (std::vector<float>{101, 105, 103, 107}));
  const AdapterLinearPart& down = share.linears()[1];
  EXPECT_EQ(floats(share, down.a_offset, 2), (std::vector<float>{202, 203}));
  EXPECT_EQ(floats(share, down.b_offset, 6), (std::vector<float>{301, 305, 309, 303, 307, 311}));
}

TEST(Adapter, RefusesStacksThatFitNoExperts) {
  const std::string stack = "base_model.model.model.layers.0.mlp.experts.";
  Folder other;
  other.add(stack + "lora_A.weight", {4, 2}, 0);
  other.add(stack + "lora_B.weight", {5, 4}, 0);
  expect_error(other.load(layout_of_experts()), StatusCode::kInvalidArgument,
               {"mlp.experts", "[4, 2]", "another model"});
  Folder unknown;
  unknown.add(stack + "lora_A.weight", {4, 1}, 0);
  unknown.add(stack + "lora_B.weight", {kCols, 4}, 0);
  expect_error(unknown.load(layout_of()), StatusCode::kInvalidArgument, {"mlp.experts", "lora_target_modules"});
  Folder rank;
  rank.add(stack + "lora_A.weight", {6, 1}, 0);
  rank.add(stack + "lora_B.weight", {kCols, 6}, 0);
  expect_error(rank.load(layout_of_experts()), StatusCode::kInvalidArgument,
               {"rank 3 for each of 2 experts", "says 2"});
}

TEST(Adapter, RefusesValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Folder folder;
    folder.add_pair("model.layers.0.q_proj", 4, 2, 0);
    folder.values(1)[3] = bad;
    expect_error(folder.load(layout_of()), StatusCode::kInvalidArgument, {"value 3", "lora_B", "finite"});
  }
}

TEST(Adapter, NamesMissingFiles) {
  const std::unique_ptr<Device> device = std::move(CpuDevice::create({})).value();
  expect_error(Adapter::load("/nowhere", layout_of(), *device), StatusCode::kNotFound, {"/nowhere"});
  const ScratchDir pickled;
  pickled.write("adapter_config.json", R"({"r": 2})");
  pickled.write("adapter_model.bin", "x");
  expect_error(Adapter::load(pickled.path(), layout_of(), *device), StatusCode::kUnimplemented, {"adapter_model.bin"});
}

}  // namespace
}  // namespace tessera::test
