// Catches: weights that reach the wrong place or arrive in the wrong order if they pass through pinned buffers (the
// CPU's direct writes would not show this); zeros in the wrong place after padded parts; an error of the weight source
// that is not returned.
#include "tessera/model/weights/weight_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/model/weights/weights.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

WeightSpec weight(std::string name, ir::DType dtype, std::vector<std::int64_t> shape, std::vector<WeightPart> parts) {
  WeightSpec spec{.name = std::move(name), .type = {}, .parts = std::move(parts), .constant = {}};
  spec.type.dtype = dtype;
  for (const std::int64_t size : shape) spec.type.shape.emplace_back(size);
  return spec;
}

// Returns several weights: a small slice, joined parts that are larger than a buffer, constants, and a weight whose
// dummy values are ones.
std::vector<WeightSpec> specs() {
  constexpr std::int64_t kRows = 3000;
  constexpr std::int64_t kCols = 2000;
  std::vector<WeightSpec> all;
  all.push_back(
      weight("sliced", ir::DType::kFloat32, {kRows, kCols / 2},
             {{.tensor = "a", .shape = {kRows, kCols}, .slice = {.dim = 1, .begin = 700, .size = kCols / 2}}}));
  all.push_back(weight("joined", ir::DType::kBFloat16, {2 * kRows + 1, kCols},
                       {{.tensor = "b", .shape = {kRows, kCols}, .slice = {}},
                        {.tensor = "c", .shape = {kRows + 1, kCols}, .slice = {}}}));
  all.push_back(weight("constant", ir::DType::kFloat32, {3}, {}));
  all.back().constant = {1.0F, 2.0F, 3.0F};
  all.push_back(weight("norm", ir::DType::kFloat16, {77}, {{.tensor = "n", .shape = {77}, .slice = {}}}));
  all.back().dummy_init = WeightSpec::Init::kOnes;
  return all;
}

TEST(WeightUpload, StagedLoadingEqualsDirectLoading) {
  const std::unique_ptr<CpuDevice> near = CpuDevice::create({.threads = 1}).value();
  const std::unique_ptr<CpuDevice> distant = testing::distant_device({.threads = 1});
  const std::vector<WeightSpec> all = specs();
  const Weights direct = Weights::load(all, dummy_source(7), *near, false).value();
  const Weights staged = Weights::load(all, dummy_source(7), *distant, false).value();
  ASSERT_GT(direct.total_bytes(), static_cast<std::int64_t>(2 * WeightUpload::kBufferBytes)) << "several buffers full";
  for (const WeightSpec& spec : all) {
    const auto bytes = static_cast<std::size_t>(ir::size_bytes(spec.type, {}).value());
    EXPECT_EQ(std::memcmp(direct.addresses().at(spec.name).raw(), staged.addresses().at(spec.name).raw(), bytes), 0)
        << spec.name;
  }
}

// The weights have slices that are padded in rows and columns, are larger than a buffer, and are followed by another
// part. Every element of a slice must be in its place, and all elements of the padding must be zero.
TEST(WeightUpload, PaddedPartsEndInZeros) {
  constexpr std::int64_t kRows = 2100;
  constexpr std::int64_t kCols = 1001;
  constexpr std::int64_t kPaddedRows = 2112;
  constexpr std::int64_t kPaddedCols = 1024;
  const std::vector<WeightPart> matrices = {
      {.tensor = "rows", .shape = {kRows + 9, kCols}, .slice = {.dim = 0, .begin = 5, .size = kRows}},
      {.tensor = "cols", .shape = {kRows, kCols + 9}, .slice = {.dim = 1, .begin = 5, .size = kCols}}};
  std::vector<WeightSpec> dense;
  std::vector<WeightSpec> padded;
  for (WeightPart part : matrices) {
    dense.push_back(weight(part.tensor, ir::DType::kFloat32, {kRows, kCols}, {part}));
    part.padded = {kPaddedRows, kPaddedCols};
    padded.push_back(weight(part.tensor, ir::DType::kFloat32, {2 * kPaddedRows, kPaddedCols}, {part, part}));
  }
  const WeightPart vector{.tensor = "v", .shape = {kCols}};
  dense.push_back(weight("v", ir::DType::kFloat32, {1, kCols}, {vector}));
  padded.push_back(weight("v", ir::DType::kFloat32, {2, kPaddedCols}, {vector, vector}));
  for (WeightPart& part : padded.back().parts) part.padded = {kPaddedCols};
  ASSERT_GT(ir::size_bytes(padded[0].type, {}).value() / 2, static_cast<std::int64_t>(WeightUpload::kBufferBytes));

  const std::unique_ptr<CpuDevice> near = CpuDevice::create({.threads = 1}).value();
  const std::unique_ptr<CpuDevice> distant = testing::distant_device({.threads = 1});
  const Weights expected = Weights::load(dense, dummy_source(7), *near, false).value();
  for (Device* device : {static_cast<Device*>(near.get()), static_cast<Device*>(distant.get())}) {
    const Weights loaded = Weights::load(padded, dummy_source(7), *device, false).value();
    for (std::size_t i = 0; i < padded.size(); ++i) {
      const auto rows = dense[i].type.shape[0].constant().value();
      const auto padded_rows = padded[i].type.shape[0].constant().value();
      const auto* value = reinterpret_cast<const float*>(loaded.addresses().at(padded[i].name).raw());
      const auto* real = reinterpret_cast<const float*>(expected.addresses().at(dense[i].name).raw());
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < padded_rows; ++row)
        for (std::int64_t col = 0; col < kPaddedCols; ++col) {
          const std::int64_t of_part = row % (padded_rows / 2);
          const float want = of_part < rows && col < kCols ? real[of_part * kCols + col] : 0.0F;
          wrong += value[row * kPaddedCols + col] != want;
        }
      EXPECT_EQ(wrong, 0) << padded[i].name;
    }
  }
}

TEST(WeightUpload, RefusesPaddingThatDoesNotHoldThePart) {
  const std::unique_ptr<CpuDevice> device = CpuDevice::create({.threads = 1}).value();
  const auto load = [&](std::vector<std::int64_t> padded) {
    const WeightPart part{.tensor = "a", .shape = {4, 6}, .padded = std::move(padded)};
    return Weights::load(std::vector{weight("a", ir::DType::kFloat32, {8, 8}, {part})}, dummy_source(7), *device, false)
        .status();
  };
  EXPECT_TRUE(load({8, 8}).ok());
  EXPECT_THAT(load({8, 5}).message(), HasSubstr("a: [4, 6] padded to [8, 5]"));
  EXPECT_THAT(load({3, 8}).message(), HasSubstr("padded to [3, 8]"));
  EXPECT_THAT(load({64}).message(), HasSubstr("[4, 6] padded to [64]"));
  EXPECT_THAT(load({9, 8}).message(), HasSubstr("do not fit"));
}

TEST(WeightUpload, ConvertsConstantsToTheWeightsType) {
  const std::unique_ptr<CpuDevice> device = CpuDevice::create({.threads = 1}).value();
  std::vector<WeightSpec> all{weight("ones", ir::DType::kBFloat16, {3}, {})};
  all[0].constant = {1.0F, 1.0F, -2.0F};
  const Weights weights = Weights::load(all, dummy_source(7), *device, false).value();
  const auto* bits = reinterpret_cast<const std::uint16_t*>(weights.addresses().at("ones").raw());
  EXPECT_EQ((std::vector<int>(bits, bits + 3)), (std::vector<int>{0x3f80, 0x3f80, 0xc000}));

  all[0].constant.pop_back();
  EXPECT_FALSE(Weights::load(all, dummy_source(7), *device, false).ok()) << "two values for three elements";
}

TEST(WeightUpload, ReturnsTheSourcesError) {
  const std::unique_ptr<CpuDevice> distant = testing::distant_device({.threads = 1});
  int calls = 0;
  const WeightSource failing = [&](const WeightSpec&, const WeightPart& part, StoredDtype, const SliceRuns&,
                                   std::span<std::byte>) {
    return ++calls < 3 ? ok_status() : data_loss("half of " + part.tensor);
  };
  const Status status = Weights::load(specs(), failing, *distant, false).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(calls, 3);
}

TEST(SliceRuns, PiecesCoverTheSliceOnce) {
  for (const SliceRuns runs : {SliceRuns{.num_runs = 1, .run = 100, .stride = 100, .start = 7},
                               SliceRuns{.num_runs = 9, .run = 10, .stride = 25, .start = 3},
                               SliceRuns{.num_runs = 3, .run = 50, .stride = 50, .start = 0}}) {
    for (const std::int64_t most : {1, 3, 10, 25, 99, 1000}) {
      std::vector<std::int64_t> elements;
      for (std::int64_t first = 0; first < runs.num_elements();) {
        const SliceRuns piece = runs.piece(first, most);
        ASSERT_GE(piece.num_elements(), 1);
        ASSERT_LE(piece.num_elements(), most);
        for (std::int64_t r = 0; r < piece.num_runs; ++r)
          for (std::int64_t i = 0; i < piece.run; ++i) elements.push_back(piece.start + r * piece.stride + i);
        first += piece.num_elements();
      }
      std::vector<std::int64_t> want;
      for (std::int64_t r = 0; r < runs.num_runs; ++r)
        for (std::int64_t i = 0; i < runs.run; ++i) want.push_back(runs.start + r * runs.stride + i);
      EXPECT_EQ(elements, want) << most;
    }
  }
}

}  // namespace
}  // namespace tessera
