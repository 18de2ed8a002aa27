// Compares the results of vision towers, without language models, with Hugging Face's for the same patches. Catches:
// windows, positions or merge units in another order; images that attend to each other; padding that affects a real
// row; a graph whose results differ from those that its operators give if each value has its own memory; channels of
// gated MLPs that are padded wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/model/family.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/verify/verify_vision.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

using ir::DType;
using testing::golden_path;
using ::testing::HasSubstr;
using testing::on_cuda;
using testing::test_device;

struct GoldenImages {
  std::vector<Patches> images{};
  std::vector<float> embeds{};  // [tokens of all images, hidden]
};

// Reads one case from a golden folder.
GoldenImages read_case(const std::string& name, std::size_t i, const VisionConfig& config) {
  const Json json = *Json::read_file(golden_path(name) + "/golden.json");
  const SafetensorsFile file = *SafetensorsFile::open(golden_path(name) + "/golden.safetensors");
  const auto floats = [&](const std::string& tensor) {
    const StoredTensor* stored = file.find(tensor + "_" + std::to_string(i));
    std::vector<float> values(stored->data.size() / sizeof(float));
    std::memcpy(values.data(), stored->data.data(), stored->data.size());
    return values;
  };
  GoldenImages golden{.embeds = floats("image_embeds")};
  const std::vector<float> values = floats("pixel_values");
  auto from = values.begin();
  for (const Json& grid : json.find("cases")->as_array()[i].find("image_grid_thw")->as_array()) {
    const auto at = [&](std::size_t k) { return static_cast<std::int32_t>(grid.as_array()[k].as_int()); };
    Patches image{.grid = {.t = at(0), .h = at(1), .w = at(2)},
                  .merge_size = static_cast<std::int32_t>(config.merge_size),
                  .patch_values = config.patch_values()};
    const std::int64_t count = image.grid.patches() * image.patch_values;
    image.values.assign(from, from + count);
    from += count;
    golden.images.push_back(std::move(image));
  }
  EXPECT_EQ(from, values.end());
  return golden;
}

// A tower whose weights are on the device under test, and the rows that the tower writes.
struct Tower {
  ModelGraphs graphs;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena> workspace;
  KernelVariants warm;
  RunnerOptions options;
  std::unique_ptr<Allocation> rows;
  std::unique_ptr<VisionRunner> runner;
  DType dtype = DType::kFloat32;

  static constexpr std::int64_t kRows = 256;

  std::int64_t row_values() const { return runner->row_values(); }

  // Returns the rows that encode() gives for the images, one after another.
  std::vector<float> encode(const std::vector<const Patches*>& images, bool eagerly = false) {
    std::vector<std::int64_t> first_rows;
    std::int64_t tokens = 0;
    for (const Patches* image : images) {
      first_rows.push_back(tokens);
      tokens += image->tokens();
    }
    EXPECT_LE(tokens, kRows);
    const Status status = runner->encode(images, first_rows, rows->data(), eagerly);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return read(rows->data(), tokens * row_values());
  }
  std::vector<float> read(DeviceAddress from, std::int64_t values) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(values) * ir::dtype_size(dtype));
    EXPECT_TRUE(stream->download(bytes.data(), from, bytes.size()).ok());
    EXPECT_TRUE(stream->synchronize().ok());
    std::vector<float> floats(static_cast<std::size_t>(values));
    EXPECT_TRUE(widen_floats(bytes.data(), dtype, floats).ok());
    return floats;
  }
  Status capture_all() {
    while (TRY(runner->capture_next())) {
    }
    return ok_status();
  }
};

constexpr std::int64_t kAllInner = 128;
constexpr std::int64_t kFewInner = 100;

// Returns the golden weights in float32. The tower's gated MLPs keep only the first kFewInner of their kAllInner inner
// channels (intermediate_size). If the model was built with kAllInner channels, the other channels are zeros.
WeightSource few_inner_values(const WeightSource& golden) {
  return [golden](const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                  std::span<std::byte> to) -> Status {
    const auto of_tower = [&](const char* name) {
      return part.tensor.starts_with("visual.") && part.tensor.find(name) != std::string::npos;
    };
    const bool by_cols = of_tower("mlp.down_proj.weight");
    const bool by_rows = of_tower("mlp.gate_proj.") || of_tower("mlp.up_proj.");
    if (!by_cols && !by_rows) return golden(spec, part, dtype, runs, to);
    WeightPart whole{.tensor = part.tensor, .shape = part.shape};
    (by_cols ? whole.shape.back() : whole.shape.front()) = kAllInner;
    const std::int64_t cols = part.shape.size() == 2 ? part.shape.back() : 1;
    const std::int64_t whole_cols = part.shape.size() == 2 ? whole.shape.back() : 1;
    const SliceRuns all = TRY(slice_runs(whole.shape, {}));
    std::vector<float> values(static_cast<std::size_t>(all.num_elements()));
    TRY(golden(spec, whole, dtype, all, std::as_writable_bytes(std::span(values))));
    for (std::int64_t i = 0; i < runs.num_elements(); ++i) {  // `runs` is one run: no rank slices the tensor
      const std::int64_t row = (runs.start + i) / cols;
      const std::int64_t col = (runs.start + i) % cols;
      const bool zero = (by_cols ? col : row) >= kFewInner;
      const float value = zero ? 0.0F : values[static_cast<std::size_t>(row * whole_cols + col)];
      std::memcpy(to.data() + i * static_cast<std::int64_t>(sizeof(float)), &value, sizeof(float));
    }
    return ok_status();
  };
}

Result<std::unique_ptr<Tower>> make_tower(const std::string& name, VisionOptions vision, DType dtype = DType::kFloat32,
                                          std::optional<std::int64_t> inner_values = std::nullopt) {
  Device& device = test_device();
  auto tower = std::make_unique<Tower>();
  tower->dtype = dtype;
  ModelConfig config = TRY(ModelConfig::read(golden_path(name), built_in_families()));
  WeightSource source = checkpoint_source(TRY(Checkpoint::open(golden_path(name))));
  if (inner_values) {
    config.vision->intermediate_size = *inner_values;
    source = few_inner_values(source);
  }
  tower->graphs = TRY(build_model(config, {.dtype = dtype}, built_in_ops(), built_in_families()));
  tower->weights = std::make_unique<Weights>(TRY(Weights::load(tower->graphs.weights, source, device, false)));
  tower->stream = TRY(device.create_stream("main"));
  tower->arena = TRY(device.create_arena({.reserve_bytes = std::size_t{1} << 30, .name = "arena"}));
  tower->workspace = TRY(device.create_arena({.reserve_bytes = std::size_t{1} << 30, .name = "workspace"}));
  tower->runner = TRY(VisionRunner::create({.tower = *tower->graphs.vision,
                                            .weights = tower->weights->addresses(),
                                            .device = device,
                                            .stream = *tower->stream,
                                            .arena = *tower->arena,
                                            .workspace = *tower->workspace,
                                            .warm = tower->warm,
                                            .options = tower->options},
                                           std::move(vision)));
  tower->rows = TRY(
      device.allocate(static_cast<std::size_t>(Tower::kRows * tower->row_values()) * ir::dtype_size(dtype), "rows"));
  return tower;
}

std::vector<const Patches*> pointers(const std::vector<Patches>& images) {
  std::vector<const Patches*> all;
  for (const Patches& image : images) all.push_back(&image);
  return all;
}

std::vector<float> columns(const std::vector<float>& rows, std::int64_t of_row, std::int64_t count) {
  std::vector<float> taken;
  for (auto row = rows.begin(); row != rows.end(); row += of_row) taken.insert(taken.end(), row, row + count);
  return taken;
}

// Returns an image with random content.
Patches noise(const VisionConfig& config, std::int32_t h, std::int32_t w, std::uint32_t seed) {
  Patches image{.grid = {.t = 1, .h = h, .w = w},
                .merge_size = static_cast<std::int32_t>(config.merge_size),
                .patch_values = config.patch_values()};
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  image.values.resize(static_cast<std::size_t>(image.grid.patches() * image.patch_values));
  for (float& value : image.values) value = uniform(generator);
  return image;
}

const VisionOptions kSmall{.max_patches = 512, .sizes = {16, 64, 256, 400}};

class VisionTower : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
  std::unique_ptr<Tower> tower(const VisionOptions& options, DType dtype = DType::kFloat32) {
    Result<std::unique_ptr<Tower>> made = make_tower(GetParam(), options, dtype);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *std::move(made) : nullptr;
  }
};

TEST_P(VisionTower, GivesTheReferencesEmbeddings) {
  for (const bool pieces : {false, true}) {
    VisionOptions options = kSmall;
    if (pieces) options.split_ops = {"segment_attention"};
    const std::unique_ptr<Tower> t = tower(options);
    ASSERT_NE(t, nullptr);
    const Status captured = t->capture_all();
    ASSERT_TRUE(captured.ok()) << captured.to_string();
    std::vector<Patches> all;
    std::vector<float> expected_all;
    for (std::size_t i = 0; i < 3; ++i) {
      const GoldenImages golden = read_case(GetParam(), i, t->runner->config());
      for (const bool eagerly : {false, true}) {
        const std::vector<float> rows = t->encode(pointers(golden.images), eagerly);
        const std::vector<float> embeds = columns(rows, t->row_values(), t->runner->config().out_hidden_size);
        const testing::Distance apart = testing::distance(embeds, golden.embeds);
        std::printf("  %s case %zu %s%s: greatest difference %.3g\n", GetParam(), i,
                    std::string(vision_reason_name(t->runner->last_reason())).c_str(), pieces ? " in pieces" : "",
                    apart.absolute);
        EXPECT_LE(apart.absolute, 1e-4);
      }
      all.insert(all.end(), golden.images.begin(), golden.images.end());
      expected_all.insert(expected_all.end(), golden.embeds.begin(), golden.embeds.end());
    }
    const std::vector<float> packed = t->encode(pointers(all));
    EXPECT_LE(
        testing::distance(columns(packed, t->row_values(), t->runner->config().out_hidden_size), expected_all).absolute,
        1e-4);
    EXPECT_GT(t->runner->counters().graph_forwards, 0);
  }
}

TEST_P(VisionTower, GivesThemInBf16) {
  const std::unique_ptr<Tower> t = tower(kSmall, DType::kBFloat16);
  ASSERT_NE(t, nullptr);
  for (std::size_t i = 0; i < 3; ++i) {
    const GoldenImages golden = read_case(GetParam(), i, t->runner->config());
    const std::vector<float> embeds =
        columns(t->encode(pointers(golden.images)), t->row_values(), t->runner->config().out_hidden_size);
    const testing::Distance apart = testing::distance(embeds, golden.embeds);
    std::printf("  %s case %zu bf16: %.3g relative\n", GetParam(), i, apart.relative);
    EXPECT_LE(apart.relative, 3e-2);
  }
}

// The model pads the inner channels of a gated MLP with zeros to a size that suits matmuls. This must change no bit.
TEST(GatedTower, PaddedInnerValuesChangeNoBit) {
  const std::string name = "qwen2.5-vl";
  const Result<std::unique_ptr<Tower>> all = make_tower(name, kSmall, DType::kFloat32, kAllInner);
  const Result<std::unique_ptr<Tower>> few = make_tower(name, kSmall, DType::kFloat32, kFewInner);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  const GoldenImages golden = read_case(name, 0, (*all)->runner->config());
  const std::vector<float> expected = (*all)->encode(pointers(golden.images));
  EXPECT_EQ((*few)->encode(pointers(golden.images)), expected);
  EXPECT_GT(testing::distance(expected, golden.embeds).absolute, 1e-4) << "the values left out count";
}

// A budget is a maximum number of patches, and each budget has one graph. Once all budgets are captured, each graph
// must give the bits that its operators give if no two values share memory.
TEST_P(VisionTower, EveryBudgetEqualsItsOperatorsOnIsolatedMemory) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::unique_ptr<Tower> t = tower(kSmall, dtype);
    ASSERT_NE(t, nullptr);
    ASSERT_TRUE(t->capture_all().ok());
    EXPECT_EQ(t->runner->runner().report().captured, kSmall.sizes);
    const Result<std::vector<VerifyRow>> rows = verify_vision(*t->runner);
    ASSERT_TRUE(rows.ok()) << rows.status().to_string();
    EXPECT_EQ(rows->size(), 2 * kSmall.sizes.size());
    for (const VerifyRow& row : *rows) EXPECT_EQ(row.difference, "") << row.size << " with " << row.real;
  }
}

// The contents of padding rows, such as other images or NaN, must not affect real rows. An image that shares a forward
// with other images must give the same rows as alone.
TEST_P(VisionTower, RowsDependOnTheirImageAlone) {
  const std::unique_ptr<Tower> t = tower({.max_patches = 512, .sizes = {256}});
  ASSERT_NE(t, nullptr);
  ASSERT_TRUE(t->capture_all().ok());
  const VisionConfig& config = t->runner->config();
  const Patches image = noise(config, 6, 10, 1);
  const Patches other = noise(config, 8, 10, 2);
  Patches poison = noise(config, 16, 16, 3);
  std::ranges::fill(poison.values, std::nanf(""));
  t->encode({&poison});
  const std::vector<float> alone = t->encode({&image});
  EXPECT_TRUE(std::ranges::all_of(alone, [](float v) { return std::isfinite(v); }));
  t->encode({&other});
  EXPECT_EQ(t->encode({&image}), alone) << "what another image left in the padding changed rows";
  const std::vector<float> first = t->encode({&image, &other});
  const std::vector<float> second = t->encode({&other, &image});
  const auto tokens = static_cast<std::ptrdiff_t>(image.tokens() * t->row_values());
  const std::vector<float> at_start(first.begin(), first.begin() + tokens);
  const std::vector<float> at_end(second.end() - tokens, second.end());
  EXPECT_LE(testing::distance(at_start, alone).absolute, 1e-5);
  EXPECT_LE(testing::distance(at_end, alone).absolute, 1e-5);
}

// There are more images than one forward or the largest graph can hold. The rows must still be in order.
TEST_P(VisionTower, PacksImagesIntoForwards) {
  const std::unique_ptr<Tower> t = tower({.max_patches = 128, .sizes = {64}});
  ASSERT_NE(t, nullptr);
  ASSERT_TRUE(t->capture_all().ok());
  const VisionConfig& config = t->runner->config();
  std::vector<Patches> images;
  for (const auto& [h, w] : {std::pair{4, 6}, {8, 4}, {8, 12}, {2, 2}, {10, 12}, {2, 4}})
    images.push_back(noise(config, h, w, static_cast<std::uint32_t>(images.size())));
  std::vector<float> alone;
  for (const Patches& image : images) {
    const std::vector<float> rows = t->encode({&image});
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  const VisionCounters before = t->runner->counters();
  const std::vector<float> packed = t->encode(pointers(images));
  EXPECT_LE(testing::distance(packed, alone).absolute, 1e-5);
  const VisionCounters after = t->runner->counters();
  EXPECT_EQ(after.images - before.images, 6);
  EXPECT_EQ(after.graph_forwards - before.graph_forwards, 1);  // 24 + 32 patches; eagerly 96 + 4 and 120 + 8
  EXPECT_EQ(after.eager_forwards - before.eager_forwards, 2);
}

// Each number of patches has its own graph, which is captured on first use, as in SGLang. Only the most recently used
// graphs are kept.
TEST_P(VisionTower, KeepsGraphsOfExactSizes) {
  const std::unique_ptr<Tower> t = tower({.max_patches = 128, .exact_graphs = 2});
  ASSERT_NE(t, nullptr);
  const VisionConfig& config = t->runner->config();
  const std::vector<Patches> images = {noise(config, 4, 6, 1), noise(config, 6, 6, 2), noise(config, 2, 6, 3)};
  const auto reason_of = [&](std::size_t image) {
    const std::vector<float> rows = t->encode({&images[image]});
    const VisionReason reason = t->runner->last_reason();
    EXPECT_EQ(rows, t->encode({&images[image]}, /*eagerly=*/true)) << "image " << image;
    EXPECT_EQ(t->runner->last_reason(), VisionReason::kForced);
    return reason;
  };
  std::vector<VisionReason> reasons;
  for (const std::size_t image : {0, 1, 0, 2, 0, 1, 2}) reasons.push_back(reason_of(image));
  using enum VisionReason;
  EXPECT_THAT(reasons,
              ::testing::ElementsAre(kFirstUse, kFirstUse, kReplayed, kFirstUse, kReplayed, kFirstUse, kFirstUse));
  EXPECT_EQ(t->runner->counters().padded_patches, 0);
  EXPECT_EQ(t->runner->runner().executable().num_captured(), 2);
}

TEST_P(VisionTower, RefusesWhatItCannotTake) {
  const std::unique_ptr<Tower> t = tower({.max_patches = 128, .sizes = {64}});
  ASSERT_NE(t, nullptr);
  const VisionConfig& config = t->runner->config();
  const auto message = [&](const Patches& image) { return t->runner->check(image).to_string(); };
  EXPECT_THAT(message(noise(config, 12, 12, 1)), HasSubstr("144 patches; at most 128"));
  Patches odd = noise(config, 2, 4, 1);
  odd.grid = {.t = 1, .h = 1, .w = 8};
  EXPECT_THAT(message(odd), HasSubstr("multiples of 2"));
  odd = noise(config, 2, 4, 1);
  odd.values.pop_back();
  EXPECT_THAT(message(odd), HasSubstr("1 × 2 × 4"));
  odd = noise(config, 2, 4, 1);
  odd.patch_values = 7;
  EXPECT_THAT(message(odd), HasSubstr("7 values"));
  EXPECT_THAT(make_tower(GetParam(), {.max_patches = 128, .sizes = {64, 66}}).status().to_string(),
              HasSubstr("vision size 66"));
  EXPECT_THAT(make_tower(GetParam(), {.max_patches = 126}).status().to_string(), HasSubstr("max_patches is 126"));
}

INSTANTIATE_TEST_SUITE_P(Goldens, VisionTower,
                         ::testing::Values("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5-vl"),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Larger, VisionTower,
                         ::testing::Values("shared/qwen2.5-vl", "shared/qwen3-vl", "shared/qwen3.5-vl"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
