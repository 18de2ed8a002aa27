// Catches: experts that were quantised separately, but are looked for in a stacked tensor because their family usually
// stacks experts; MXFP4 experts whose bytes come from another rank's rows or columns; a rank that reads a block without
// the block's exponent.
#include <gmock/gmock.h>

#include <map>

#include "tessera/model/layers/moe.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTwoExperts = 2;
constexpr std::int64_t kSideOfLayer = 64;
constexpr std::int64_t kSideOfExpert = 64;

constexpr const char* kMxfp4Linears =
    R"({"quantization_config": {"config_groups": {"g": {"targets": ["Linear"], "weights":
    {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}}}}})";

// Returns a function that finds the type of a tensor by the ending of its name.
StoredTypeOf types_by_ending(const std::map<std::string, StoredDtype>& endings) {
  return [endings](std::string_view tensor) -> std::optional<StoredDtype> {
    for (const auto& [ending, dtype] : endings)
      if (tensor.ends_with(ending)) return dtype;
    return std::nullopt;
  };
}

const StoredTypeOf kPackedExperts =
    types_by_ending({{"_proj.weight_packed", StoredDtype::kU8}, {"_proj.weight_scale", StoredDtype::kU8}});

// Returns the weights of a rank's experts. The keys are the weights' names.
Result<std::map<std::string, WeightSpec>> weights_of(ExpertLayout layout, const StoredTypeOf& stored, int rank = 0,
                                                     int ranks = 1, const char* settings = kMxfp4Linears) {
  ModelConfig config;
  config.hidden_size = kSideOfLayer;
  config.moe = MoeConfig{.num_experts = kTwoExperts, .experts_per_token = 1, .intermediate_size = kSideOfExpert};
  const WeightFormats formats = *WeightFormats::read(*Json::parse(settings, "config"), nullptr, "m/config.json");
  LayerBuilder b("test", {.tp_rank = rank, .tp_size = ranks, .stored_type = stored}, built_in_ops(), "model.", formats);
  (void)b.begin_layer(0);
  const ir::ValueId x = b.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, kSideOfLayer}});
  const Routing routing{.ids = b.graph.input("ids", {ir::DType::kInt32, {ir::Symbol::kTokens, 1}}),
                        .weights = b.graph.input("weights", {ir::DType::kFloat32, {ir::Symbol::kTokens, 1}})};
  b.graph.output(add_experts(b, config, x, routing, {.prefix = "e.", .layout = layout}));
  TRY(b.graph.finish());
  std::map<std::string, WeightSpec> weights;
  for (WeightSpec& weight : b.take_weights()) weights.emplace(weight.name, std::move(weight));
  return weights;
}

std::vector<std::string> names_in(const std::map<std::string, WeightSpec>& weights) {
  std::vector<std::string> names;
  for (const auto& [name, weight] : weights) names.push_back(name);
  return names;
}

const std::vector<std::string> kBytesInMxfp4{"e.down_proj.blocks", "e.down_proj.scales", "e.gate_up_proj.blocks",
                                             "e.gate_up_proj.scales"};

TEST(QuantisedExperts, AreReadOneByOneInEveryFamily) {
  for (const ExpertLayout layout : {ExpertLayout::kSeparate, ExpertLayout::kStacked, ExpertLayout::kTransposed}) {
    for (const StoredTypeOf& stored : {kPackedExperts, StoredTypeOf()}) {
      const auto weights = weights_of(layout, stored);
      ASSERT_TRUE(weights.ok()) << weights.status().to_string();
      EXPECT_EQ(names_in(*weights), kBytesInMxfp4);
      EXPECT_EQ(weights->at("e.gate_up_proj.blocks").parts[3].tensor, "e.1.up_proj.weight_packed");
      EXPECT_EQ(weights->at("e.down_proj.scales").parts[1].tensor, "e.1.down_proj.weight_scale");
    }
  }
}

// The settings say that every linear is quantised, but the tensor is stored as BF16. The stored type decides.
TEST(QuantisedExperts, AStackOfNumbersStaysAStack) {
  const auto weights = weights_of(ExpertLayout::kStacked, types_by_ending({{"e.gate_up_proj", StoredDtype::kBF16}}));
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_EQ(names_in(*weights), (std::vector<std::string>{"e.down_proj.weight", "e.gate_up_proj.weight"}));
  EXPECT_EQ(weights->at("e.gate_up_proj.weight").parts[0].tensor, "e.gate_up_proj");
}

TEST(QuantisedExperts, ARankHasItsBytesOfWholeBlocks) {
  const auto weights = weights_of(ExpertLayout::kSeparate, kPackedExperts, 1, 2);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_EQ(names_in(*weights), kBytesInMxfp4);
  const auto expect = [&](const char* name, const ir::Shape& shape, const TensorSlice& slice) {
    const WeightSpec& weight = weights->at(name);
    EXPECT_EQ(weight.type.shape, shape) << name;
    for (const WeightPart& part : weight.parts) {
      EXPECT_EQ(part.slice.dim, slice.dim) << name;
      EXPECT_EQ(part.slice.begin, slice.begin) << name;
      EXPECT_EQ(part.slice.size, slice.size) << name;
    }
  };
  expect("e.gate_up_proj.blocks", {kTwoExperts, kSideOfExpert, kSideOfLayer / 2}, {.dim = 0, .begin = 32, .size = 32});
  expect("e.gate_up_proj.scales", {kTwoExperts, kSideOfExpert, kSideOfLayer / 32}, {.dim = 0, .begin = 32, .size = 32});
  expect("e.down_proj.blocks", {kTwoExperts, kSideOfLayer, kSideOfExpert / 4}, {.dim = 1, .begin = 16, .size = 16});
  expect("e.down_proj.scales", {kTwoExperts, kSideOfLayer, 1}, {.dim = 1, .begin = 1, .size = 1});
}

TEST(QuantisedExperts, RanksThatShareABlockHaveItsScale) {
  const auto weights = weights_of(ExpertLayout::kSeparate, kPackedExperts, 3, 4);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  const WeightSpec& scales = weights->at("e.down_proj.scales");
  EXPECT_EQ(scales.type, (ir::Type{ir::DType::kFloat32, {kTwoExperts * kSideOfLayer, 1}}));
  const auto& grid = std::get<GridStorage>(scales.parts[0].storage);
  EXPECT_TRUE(grid.exponents);
  EXPECT_EQ(grid.block_cols, 32);
  EXPECT_EQ(grid.step_cols, 16);
  EXPECT_EQ(scales.parts[0].slice.begin, 3) << "columns 48 to 63 in steps of 16";
}

TEST(QuantisedExperts, OfOneLayerHaveOneFormat) {
  const StoredTypeOf mixed = types_by_ending({{"e.1.up_proj.weight", StoredDtype::kBF16},
                                              {"_proj.weight_packed", StoredDtype::kU8},
                                              {"_proj.weight_scale", StoredDtype::kU8}});
  const StoredTypeOf without = [&](std::string_view tensor) {
    return tensor.starts_with("e.1.up_proj.weight_") ? std::nullopt : mixed(tensor);
  };
  const Status refused = weights_of(ExpertLayout::kSeparate, without).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("e.1.up_proj is unquantised; accepted: MXFP4, groups of 32, the format of the "
                        "layer's other experts"));
}

TEST(QuantisedExperts, WithAnOrderOfColumnsAreRefused) {
  constexpr const char* kOrdered = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32,
      "desc_act": true}})";
  const Status refused = weights_of(ExpertLayout::kSeparate, StoredTypeOf(), 0, 1, kOrdered).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("e.0.gate_proj: experts whose columns have an order (desc_act)"));
}

}  // namespace
}  // namespace tessera
