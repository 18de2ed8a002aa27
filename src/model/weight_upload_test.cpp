// Catches: weights that the path through pinned buffers puts in the wrong place or order, which direct writes on the
// CPU would not show, and an error of a source that is lost.
#include "tessera/model/weight_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/weights.h"

namespace tessera {
namespace {

// A CPU device that reports to be a GPU, so that weights go through the pinned buffers.
class DistantDevice final : public CpuDevice {
 public:
  static std::unique_ptr<DistantDevice> create() {
    DeviceProperties properties = CpuDevice::read_properties({.threads = 1}).value();
    properties.on_host = false;
    return std::unique_ptr<DistantDevice>(new DistantDevice(std::move(properties)));
  }

 private:
  using CpuDevice::CpuDevice;
};

WeightSpec weight(std::string name, ir::DType dtype, std::vector<std::int64_t> shape, std::vector<WeightPart> parts) {
  WeightSpec spec{.name = std::move(name), .type = {}, .parts = std::move(parts), .constant = {}};
  spec.type.dtype = dtype;
  for (const std::int64_t size : shape) spec.type.shape.emplace_back(size);
  return spec;
}

// Rows of a part that are one slice of many, more than a buffer holds, and constants.
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
  const std::unique_ptr<DistantDevice> distant = DistantDevice::create();
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
  const std::unique_ptr<DistantDevice> distant = DistantDevice::create();
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
