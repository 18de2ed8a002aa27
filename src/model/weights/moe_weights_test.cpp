// Catches: an expert's rows that come from another expert; gate and up that are exchanged; a rank whose rows or experts
// differ between layouts. All layouts in which a checkpoint stores experts must give the same values, and 4-bit experts
// must keep the stored bytes.
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/layers/moe.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kHidden = 4;
constexpr std::int64_t kExpertSize = 6;  // intermediate size of an expert

// Each of these functions returns one element of expert e. gate_up() returns an element of the gate or up matrix,
// down() one of the down matrix, and bias() one of the bias of gate or up. Each function gives every element a
// different number.
float gate_up(std::int64_t e, std::int64_t row, std::int64_t h, bool up) {
  return static_cast<float>(1000 * (2 * e + (up ? 1 : 0)) + 10 * row + h);
}
float down(std::int64_t e, std::int64_t h, std::int64_t i) { return static_cast<float>(-1000 * e - 10 * h - i - 1); }
float bias(std::int64_t e, std::int64_t row, bool up) { return static_cast<float>(100 * e + row) + (up ? 0.5F : 0.0F); }

// A checkpoint that contains the same experts in all layouts.
class ExpertsInEveryLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const std::string prefix = "separate." + std::to_string(e) + ".";
      for (const bool up : {false, true})
        for (std::int64_t row = 0; row < kExpertSize; ++row)
          for (std::int64_t h = 0; h < kHidden; ++h) {
            values_[prefix + (up ? "w3.weight" : "w1.weight")].push_back(gate_up(e, row, h, up));
            values_["stacked.gate_up_proj"].push_back(gate_up(e, row, h, up));
          }
      for (std::int64_t h = 0; h < kHidden; ++h)
        for (std::int64_t i = 0; i < kExpertSize; ++i) {
          values_[prefix + "w2.weight"].push_back(down(e, h, i));
          values_["stacked.down_proj"].push_back(down(e, h, i));
          values_["interleaved.gate_up_proj"].push_back(gate_up(e, i, h, false));
          values_["interleaved.gate_up_proj"].push_back(gate_up(e, i, h, true));
        }
      for (std::int64_t h = 0; h < kHidden; ++h)
        for (const bool up : {false, true})
          for (std::int64_t i = 0; i < kExpertSize; ++i)
            values_["transposed.gate_up_proj"].push_back(gate_up(e, i, h, up));
      for (std::int64_t i = 0; i < kExpertSize; ++i) {
        for (std::int64_t h = 0; h < kHidden; ++h) {
          values_["transposed.down_proj"].push_back(down(e, h, i));
          values_["interleaved.down_proj"].push_back(down(e, h, i));
        }
        for (const bool up : {false, true}) values_["interleaved.gate_up_proj_bias"].push_back(bias(e, i, up));
      }
      for (std::int64_t h = 0; h < kHidden; ++h)
        values_["interleaved.down_proj_bias"].push_back(static_cast<float>(e * kHidden + h));
    }
    write();
  }

  void write() {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, values] : values_)
      tensors.push_back({name, StoredDtype::kF32, shape_of(name), std::as_bytes(std::span(values))});
    ASSERT_TRUE(write_safetensors(dir_.path() + "/model.safetensors", tensors).ok());
  }

  static std::vector<std::int64_t> shape_of(const std::string& name) {
    static const std::map<std::string, std::vector<std::int64_t>, std::less<>> shapes = {
        {"w1.weight", {kExpertSize, kHidden}},
        {"w2.weight", {kHidden, kExpertSize}},
        {"w3.weight", {kExpertSize, kHidden}},
        {"stacked.gate_up_proj", {kExperts, 2 * kExpertSize, kHidden}},
        {"stacked.down_proj", {kExperts, kHidden, kExpertSize}},
        {"transposed.gate_up_proj", {kExperts, kHidden, 2 * kExpertSize}},
        {"transposed.down_proj", {kExperts, kExpertSize, kHidden}},
        {"interleaved.gate_up_proj", {kExperts, kHidden, 2 * kExpertSize}},
        {"interleaved.down_proj", {kExperts, kExpertSize, kHidden}},
        {"interleaved.gate_up_proj_bias", {kExperts, 2 * kExpertSize}},
        {"interleaved.down_proj_bias", {kExperts, kHidden}}};
    return shapes.find(name.starts_with("separate.") ? name.substr(11) : name)->second;
  }

  // Returns the bytes of the weights that add_experts() declares for a rank. The keys are the weights' names without
  // the prefix.
  std::map<std::string, std::vector<std::byte>> load_bytes(const ExpertTensors& tensors, int rank, int ranks,
                                                           bool biases, int parts, const WeightFormats& formats) {
    ModelConfig config;
    config.hidden_size = kHidden;
    config.moe = MoeConfig{
        .num_experts = kExperts, .experts_per_token = 1, .intermediate_size = kExpertSize, .expert_bias = biases};
    LayerBuilder b("test", {.tp_rank = rank, .tp_size = ranks, .ep_size = parts}, built_in_ops(), "model.", formats);
    (void)b.begin_layer(0);
    const ir::ValueId x = b.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, kHidden}});
    const Routing routing{.ids = b.graph.input("ids", {ir::DType::kInt32, {ir::Symbol::kTokens, 1}}),
                          .weights = b.graph.input("weights", {ir::DType::kFloat32, {ir::Symbol::kTokens, 1}})};
    b.graph.output(add_experts(b, config, x, routing, tensors));
    const Result<ir::Graph> graph = b.graph.finish();
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    const std::vector<WeightSpec> specs = b.take_weights();
    const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
    const Result<Weights> weights =
        Weights::load(specs, checkpoint_source(*Checkpoint::open(dir_.path())), *device, false);
    EXPECT_TRUE(weights.ok()) << weights.status().to_string();
    std::map<std::string, std::vector<std::byte>> loaded;
    if (!weights.ok()) return loaded;
    for (const WeightSpec& spec : specs) {
      const std::byte* at = weights->addresses().at(spec.name).raw();
      loaded[spec.name.substr(tensors.prefix.size())].assign(at, at + *ir::size_bytes(spec.type, {}));
    }
    return loaded;
  }

  // Like load_bytes(), but returns numbers instead of bytes.
  std::map<std::string, std::vector<float>> load(const ExpertTensors& tensors, int rank, int ranks, bool biases = false,
                                                 int parts = 1) {
    std::map<std::string, std::vector<float>> loaded;
    for (const auto& [name, bytes] : load_bytes(tensors, rank, ranks, biases, parts, WeightFormats())) {
      loaded[name].resize(bytes.size() / sizeof(float));
      std::memcpy(loaded[name].data(), bytes.data(), bytes.size());
    }
    return loaded;
  }

  test::ScratchDir dir_;
  std::map<std::string, std::vector<float>> values_;
};

const ExpertTensors kSeparate{.prefix = "separate.", .gate = "w1", .up = "w3", .down = "w2"};
const ExpertTensors kStacked{.prefix = "stacked.", .layout = ExpertLayout::kStacked};
const ExpertTensors kTransposed{.prefix = "transposed.", .layout = ExpertLayout::kTransposed};
const ExpertTensors kInterleaved{.prefix = "interleaved.", .layout = ExpertLayout::kInterleaved};

TEST_F(ExpertsInEveryLayout, AllLayoutsGiveTheSameValues) {
  const auto separate = load(kSeparate, 0, 1);
  EXPECT_EQ(separate.at("gate_up_proj.weight"), values_["stacked.gate_up_proj"]);
  EXPECT_EQ(separate.at("down_proj.weight"), values_["stacked.down_proj"]);
  EXPECT_EQ(load(kStacked, 0, 1), separate);
  EXPECT_EQ(load(kTransposed, 0, 1), separate);
  EXPECT_EQ(load(kInterleaved, 0, 1), separate);
}

TEST_F(ExpertsInEveryLayout, AllLayoutsGiveARankTheSameSlices) {
  const auto second = load(kSeparate, 1, 2);
  std::vector<float> rows;
  std::vector<float> columns;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    for (const bool up : {false, true})
      for (std::int64_t row = 3; row < kExpertSize; ++row)
        for (std::int64_t h = 0; h < kHidden; ++h) rows.push_back(gate_up(e, row, h, up));
    for (std::int64_t h = 0; h < kHidden; ++h)
      for (std::int64_t i = 3; i < kExpertSize; ++i) columns.push_back(down(e, h, i));
  }
  EXPECT_EQ(second.at("gate_up_proj.weight"), rows);
  EXPECT_EQ(second.at("down_proj.weight"), columns);
  EXPECT_EQ(load(kStacked, 1, 2), second);
  EXPECT_EQ(load(kTransposed, 1, 2), second);
  EXPECT_EQ(load(kInterleaved, 1, 2), second);
}

// Compares the layouts for a rank with whole experts, for a rank with slices of all experts, and for a rank with a
// single whole expert.
TEST_F(ExpertsInEveryLayout, AllLayoutsAreQuantisedAlikeAtTheStart) {
  for (const StartFormat format : {StartFormat::kFp8, StartFormat::kInt8}) {
    const WeightFormats formats = WeightFormats().quantised_at_start(format);
    for (const auto& [rank, ranks, parts] : {std::tuple{0, 1, 1}, std::tuple{1, 2, 1}, std::tuple{2, 3, 3}}) {
      const auto separate = load_bytes(kSeparate, rank, ranks, false, parts, formats);
      EXPECT_TRUE(separate.contains("gate_up_proj.scales") && separate.contains("down_proj.scales"));
      for (const ExpertTensors& layout : {kStacked, kTransposed, kInterleaved})
        EXPECT_EQ(load_bytes(layout, rank, ranks, false, parts, formats), separate) << layout.prefix;
    }
  }
}

// The ranks' results are summed, so only the first rank adds the bias of the down matrix.
TEST_F(ExpertsInEveryLayout, BiasesAreSlicedAndAddedOnce) {
  const auto first = load(kInterleaved, 0, 2, /*biases=*/true);
  const auto second = load(kInterleaved, 1, 2, /*biases=*/true);
  std::vector<float> expected;
  for (std::int64_t e = 0; e < kExperts; ++e)
    for (const bool up : {false, true})
      for (std::int64_t row = 3; row < kExpertSize; ++row) expected.push_back(bias(e, row, up));
  EXPECT_EQ(second.at("gate_up_proj.bias"), expected);
  EXPECT_EQ(first.at("down_proj.bias"), values_["interleaved.down_proj_bias"]);
  EXPECT_FALSE(second.contains("down_proj.bias"));
}

// With six ranks and three groups of experts, ranks 2 and 3 share expert 1. Rank 3 has the expert's second half. Rank 2
// has the first half and adds the bias of the down matrix.
TEST_F(ExpertsInEveryLayout, AllLayoutsGiveTheSamePartOfTheExperts) {
  const auto part = load(kSeparate, 3, 6, /*biases=*/false, /*parts=*/3);
  std::vector<float> rows;
  std::vector<float> columns;
  for (const bool up : {false, true})
    for (std::int64_t row = 3; row < kExpertSize; ++row)
      for (std::int64_t h = 0; h < kHidden; ++h) rows.push_back(gate_up(1, row, h, up));
  for (std::int64_t h = 0; h < kHidden; ++h)
    for (std::int64_t i = 3; i < kExpertSize; ++i) columns.push_back(down(1, h, i));
  EXPECT_EQ(part.at("gate_up_proj.weight"), rows);
  EXPECT_EQ(part.at("down_proj.weight"), columns);
  for (const ExpertTensors& layout : {kStacked, kTransposed, kInterleaved})
    EXPECT_EQ(load(layout, 3, 6, false, 3), part);

  const auto whole = load(kSeparate, 2, 3, /*biases=*/false, /*parts=*/3);
  const std::vector<float>& stacked = values_["stacked.gate_up_proj"];
  EXPECT_EQ(whole.at("gate_up_proj.weight"),
            std::vector<float>(stacked.end() - 2 * kExpertSize * kHidden, stacked.end()));
  for (const ExpertTensors& layout : {kStacked, kTransposed, kInterleaved})
    EXPECT_EQ(load(layout, 2, 3, false, 3), whole);

  const auto biases = load(kInterleaved, 3, 6, /*biases=*/true, /*parts=*/3);
  EXPECT_EQ(biases.at("gate_up_proj.bias"), (std::vector<float>{103, 104, 105, 103.5, 104.5, 105.5}));
  EXPECT_FALSE(biases.contains("down_proj.bias"));
  EXPECT_EQ(load(kInterleaved, 2, 6, true, 3).at("down_proj.bias"), (std::vector<float>{4, 5, 6, 7}));
}

// A checkpoint of GPT-OSS in MXFP4. Rows of gate and up alternate, and a block of 32 values has 16 bytes and one scale.
class ExpertsInFourBits : public ::testing::Test {
 protected:
  static constexpr std::int64_t kExperts = 2;
  static constexpr std::int64_t kHidden = 32;
  static constexpr std::int64_t kExpertSize = 64;

  void SetUp() override {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, shape] : shapes_) {
      std::vector<std::uint8_t>& of_tensor = bytes_[name];
      for (std::int64_t i = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()); i > 0;
           --i)
        // All bytes are below 255, because 255 is not a valid exponent.
        of_tensor.push_back(static_cast<std::uint8_t>((i * 37 + i / 251) % 255));
      tensors.push_back({name, StoredDtype::kU8, shape, std::as_bytes(std::span(of_tensor))});
    }
    ASSERT_TRUE(write_safetensors(dir_.path() + "/model.safetensors", tensors).ok());
  }

  static Result<std::vector<WeightSpec>> specs(int rank, int ranks, int parts = 1) {
    ModelConfig config;
    config.hidden_size = kHidden;
    config.moe = MoeConfig{.num_experts = kExperts,
                           .experts_per_token = 1,
                           .intermediate_size = kExpertSize,
                           .mxfp4 = true,
                           .swiglu_limit = 7};
    LayerBuilder b("test", {.tp_rank = rank, .tp_size = ranks, .ep_size = parts}, built_in_ops());
    (void)b.begin_layer(0);
    const ir::ValueId x = b.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, kHidden}});
    const Routing routing{.ids = b.graph.input("ids", {ir::DType::kInt32, {ir::Symbol::kTokens, 1}}),
                          .weights = b.graph.input("weights", {ir::DType::kFloat32, {ir::Symbol::kTokens, 1}})};
    b.graph.output(add_experts(b, config, x, routing, {.prefix = "e.", .layout = ExpertLayout::kInterleaved}));
    TRY(b.graph.finish());
    return b.take_weights();
  }

  std::map<std::string, std::vector<std::uint8_t>> load(int rank, int ranks, int parts = 1) {
    const std::vector<WeightSpec> all = *specs(rank, ranks, parts);
    const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
    const Result<Weights> weights =
        Weights::load(all, checkpoint_source(*Checkpoint::open(dir_.path())), *device, false);
    EXPECT_TRUE(weights.ok()) << weights.status().to_string();
    std::map<std::string, std::vector<std::uint8_t>> loaded;
    if (!weights.ok()) return loaded;
    for (const WeightSpec& spec : all) {
      const auto* at = reinterpret_cast<const std::uint8_t*>(weights->addresses().at(spec.name).raw());
      loaded[spec.name] = {at, at + *ir::size_bytes(spec.type, {})};
    }
    return loaded;
  }

  // Returns the stored bytes of a rank's slice of gate and up. A row of the whole tensor has `of_row` bytes.
  std::vector<std::uint8_t> gate_up(const std::string& name, std::int64_t of_row, int rank, int ranks) {
    std::vector<std::uint8_t> expected;
    for (std::int64_t e = 0; e < kExperts; ++e)
      for (const std::int64_t up : {0, 1})
        for (std::int64_t row = kExpertSize / ranks * rank; row < kExpertSize / ranks * (rank + 1); ++row)
          for (std::int64_t c = 0; c < of_row; ++c)
            expected.push_back(
                bytes_[name][static_cast<std::size_t>((e * 2 * kExpertSize + 2 * row + up) * of_row + c)]);
    return expected;
  }
  std::vector<std::uint8_t> down(const std::string& name, std::int64_t of_row, int rank, int ranks) {
    std::vector<std::uint8_t> expected;
    for (std::int64_t row = 0; row < kExperts * kHidden; ++row)
      for (std::int64_t c = of_row / ranks * rank; c < of_row / ranks * (rank + 1); ++c)
        expected.push_back(bytes_[name][static_cast<std::size_t>(row * of_row + c)]);
    return expected;
  }

  test::ScratchDir dir_;
  std::map<std::string, std::vector<std::uint8_t>> bytes_;
  const std::map<std::string, std::vector<std::int64_t>> shapes_ = {
      {"e.gate_up_proj_blocks", {kExperts, 2 * kExpertSize, kHidden / 32, 16}},
      {"e.gate_up_proj_scales", {kExperts, 2 * kExpertSize, kHidden / 32}},
      {"e.down_proj_blocks", {kExperts, kHidden, kExpertSize / 32, 16}},
      {"e.down_proj_scales", {kExperts, kHidden, kExpertSize / 32}}};
};

TEST_F(ExpertsInFourBits, AreTheStoredBytesOfARank) {
  for (const int ranks : {1, 2})
    for (int rank = 0; rank < ranks; ++rank) {
      const auto loaded = load(rank, ranks);
      EXPECT_EQ(loaded.at("e.gate_up_proj.blocks"), gate_up("e.gate_up_proj_blocks", kHidden / 2, rank, ranks));
      EXPECT_EQ(loaded.at("e.gate_up_proj.scales"), gate_up("e.gate_up_proj_scales", kHidden / 32, rank, ranks));
      EXPECT_EQ(loaded.at("e.down_proj.blocks"), down("e.down_proj_blocks", kExpertSize / 2, rank, ranks));
      EXPECT_EQ(loaded.at("e.down_proj.scales"), down("e.down_proj_scales", kExpertSize / 32, rank, ranks));
    }
}

// There are two experts. With two ranks, each rank has one expert. With four ranks, each rank has half of an expert.
TEST_F(ExpertsInFourBits, APartHasTheBytesOfItsExperts) {
  for (const int slices : {1, 2})
    for (int rank = 0; rank < 2 * slices; ++rank) {
      const auto loaded = load(rank, 2 * slices, 2);
      // `both` has the slices of both experts. The rank has only one of the experts, so this returns half of `both`.
      const auto half = [&](std::vector<std::uint8_t> both) {
        const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
        return rank < slices ? std::vector(both.begin(), middle) : std::vector(middle, both.end());
      };
      const int slice = rank % slices;
      EXPECT_EQ(loaded.at("e.gate_up_proj.blocks"), half(gate_up("e.gate_up_proj_blocks", kHidden / 2, slice, slices)));
      EXPECT_EQ(loaded.at("e.gate_up_proj.scales"),
                half(gate_up("e.gate_up_proj_scales", kHidden / 32, slice, slices)));
      EXPECT_EQ(loaded.at("e.down_proj.blocks"), half(down("e.down_proj_blocks", kExpertSize / 2, slice, slices)));
      EXPECT_EQ(loaded.at("e.down_proj.scales"), half(down("e.down_proj_scales", kExpertSize / 32, slice, slices)));
    }
}

// A block has one scale, so ranks must not divide a block.
TEST_F(ExpertsInFourBits, AreNotCutWithinABlock) {
  test::expect_error(specs(0, 4), StatusCode::kInvalidArgument,
                     {"is 64", "each of the 4 ranks that share an expert (tp_size 4, ep_size 1) has 16",
                      "multiples of 32; with a larger ep_size fewer ranks share an expert"});
  test::expect_error(specs(0, 8, 2), StatusCode::kInvalidArgument,
                     {"the 4 ranks that share an expert (tp_size 8, ep_size 2) has 16"});
  test::expect_error(specs(0, 6, 2), StatusCode::kInvalidArgument,
                     {"is 64, which does not divide among the 3 ranks that share an expert (tp_size 6, ep_size 2); "
                      "with a larger ep_size fewer ranks share an expert"});
}

}  // namespace
}  // namespace tessera
