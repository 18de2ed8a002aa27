// Catches: matrices of another module or transposed wrongly, a tensor that is ignored, and faulty files that are
// served.
#include "tessera/model/adapters/adapter.h"

#include <cmath>
#include <limits>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kCols = 3;

// One linear of q [4, 3] and k [2, 3].
AdapterLayout layout_of(std::int64_t max_rank = 4) {
  AdaptableLinear linear{.weight = "qkv.weight",
                         .cols = kCols,
                         .modules = {{"model.layers.0.q_proj", 4, kCols}, {"model.layers.0.k_proj", 2, kCols}},
                         .ranges = {{0, 0, 4}, {1, 0, 2}}};
  return *AdapterLayout::create({{linear}}, 0, {.slots = 2, .max_rank = max_rank}, ir::DType::kFloat32);
}

// An adapter's folder in the making: tensors of the numbers first, first + 1, …
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
    static const std::unique_ptr<Device> device = std::move(CpuDevice::create({})).value();
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
  // Row r of B transposed: q's four rows, then k's two, which have zeros behind rank 1.
  EXPECT_EQ(floats(share, part.b_offset, 12),
            (std::vector<float>{100, 102, 104, 106, 150, 151, 101, 103, 105, 107, 0, 0}));
}

// Two ranks share q by its rows and o by its columns.
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
      {"base_model.model.model.embed_tokens.lora_embedding_A", "embedding"},
      {"base_model.model.model.layers.0.q_proj.lora_B.bias", "bias"},
      {"base_model.model.lm_head.weight", "neither A nor B"}};
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
  expect_error(twice.load(layout_of()), StatusCode::kInvalidArgument, {"the same matrix"});
  Folder two_names;
  two_names.add_pair("model.layers.0.q_proj", 4, 2, 0);
  two_names.add_pair("model.language_model.layers.0.q_proj", 4, 2, 0);
  expect_error(two_names.load(layout_of()), StatusCode::kInvalidArgument, {"two names"});
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
