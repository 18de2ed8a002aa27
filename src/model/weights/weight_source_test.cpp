// Catches: a layout that is read as another layout, so that a weight's value depends on how the checkpoint stores it;
// several stored tensors that are joined wrongly; an error that does not name the faulty tensor.
#include "tessera/model/weights/weight_source.h"
#include "tessera/model/weights/safetensors.h"

#include <filesystem>
#include <numeric>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/gguf/gguf_test_util.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/weights.h"

namespace tessera {
namespace {

using test::expect_error;

// A checkpoint that stores one matrix [4, 6], with element (r, c) = 6r + c, in four layouts.
class StoredFourWays : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<float> plain(24);
    std::iota(plain.begin(), plain.end(), 0.0F);
    std::vector<float> transposed;
    for (int c = 0; c < 6; ++c)
      for (int r = 0; r < 4; ++r) transposed.push_back(plain[static_cast<std::size_t>(6 * r + c)]);
    const std::vector<std::int8_t> quantised(plain.begin(), plain.end());
    const std::vector<float> halves(4, 0.5F);
    const std::vector<float> joint(plain.begin() + 6, plain.end());
    std::vector<std::uint8_t> bytes(24);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{100});
    const std::vector<StoredTensor> tensors = {
        {"plain", StoredDtype::kF32, {4, 6}, std::as_bytes(std::span(plain))},
        {"conv1d", StoredDtype::kF32, {6, 4}, std::as_bytes(std::span(transposed))},
        {"int8", StoredDtype::kI8, {4, 6}, std::as_bytes(std::span(quantised))},
        {"int8.scale", StoredDtype::kF32, {4, 1}, std::as_bytes(std::span(halves))},
        {"joint", StoredDtype::kF32, {3, 6}, std::as_bytes(std::span(joint))},
        {"bytes", StoredDtype::kU8, {2, 4, 3}, std::as_bytes(std::span(bytes))}};
    ASSERT_TRUE(write_safetensors(dir_.path() + "/model.safetensors", tensors).ok());
  }

  Result<std::vector<float>> load(std::vector<WeightPart> parts, std::int64_t rows, std::int64_t cols) {
    const std::vector<WeightSpec> specs{
        {.name = "w", .type = {ir::DType::kFloat32, {rows, cols}}, .parts = std::move(parts)}};
    const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
    const Weights weights =
        TRY(Weights::load(specs, checkpoint_source(TRY(Checkpoint::open(dir_.path()))), *device, false));
    std::vector<float> floats(static_cast<std::size_t>(rows * cols));
    std::memcpy(floats.data(), weights.addresses().at("w").raw(), floats.size() * sizeof(float));
    return floats;
  }

  test::ScratchDir dir_;
};

TEST_F(StoredFourWays, AllLayoutsGiveTheSameValue) {
  const std::vector<float> plain = *load({{.tensor = "plain", .shape = {4, 6}}}, 4, 6);
  EXPECT_EQ(plain[23], 23.0F);
  EXPECT_EQ(*load({{.tensor = "conv1d", .shape = {4, 6}, .storage = TransposedStorage{}}}, 4, 6), plain);
  std::vector<float> halved =
      *load({{.tensor = "int8",
              .shape = {4, 6},
              .storage = ScaledStorage{.scale = "int8.scale", .block_rows = 1, .block_cols = 6}}},
            4, 6);
  for (float& value : halved) value *= 2;
  EXPECT_EQ(halved, plain);
}

TEST_F(StoredFourWays, AllLayoutsGiveTheSameSlice) {
  const TensorSlice columns{.dim = 1, .begin = 2, .size = 3};
  const std::vector<float> plain = *load({{.tensor = "plain", .shape = {4, 6}, .slice = columns}}, 4, 3);
  EXPECT_EQ(plain[0], 2.0F);
  EXPECT_EQ(plain[11], 22.0F);
  EXPECT_EQ(*load({{.tensor = "conv1d", .shape = {4, 6}, .slice = columns, .storage = TransposedStorage{}}}, 4, 3),
            plain);
}

TEST_F(StoredFourWays, RowsOfOneTensorMayBeSeveralParts) {
  const WeightPart last{.tensor = "joint", .shape = {3, 6}, .slice = {.dim = 0, .begin = 2, .size = 1}};
  const WeightPart first{.tensor = "joint", .shape = {3, 6}, .slice = {.dim = 0, .begin = 0, .size = 1}};
  const std::vector<float> rows = *load({last, first}, 2, 6);
  EXPECT_EQ(rows[0], 18.0F);
  EXPECT_EQ(rows[6], 6.0F);
}

// The tensor has 24 bytes in rows of six. The part consists of every other row, with all columns or with a rank's
// columns.
TEST_F(StoredFourWays, PackedBytesStayAsTheyAre) {
  const auto load_bytes = [&](const TensorSlice& slice, std::int64_t cols) {
    const std::vector<WeightSpec> specs{
        {.name = "w",
         .type = {ir::DType::kUInt8, {2, cols}},
         .parts = {{.tensor = "bytes",
                    .shape = {2, 6},
                    .slice = slice,
                    .storage = PackedStorage{.tensor_shape = {2, 4, 3}, .offset = 6, .row_stride = 12}}}}};
    const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
    const Weights weights = *Weights::load(specs, checkpoint_source(*Checkpoint::open(dir_.path())), *device, false);
    const auto* at = reinterpret_cast<const std::uint8_t*>(weights.addresses().at("w").raw());
    return std::vector<int>(at, at + 2 * cols);
  };
  EXPECT_THAT(load_bytes({}, 6), ::testing::ElementsAre(106, 107, 108, 109, 110, 111, 118, 119, 120, 121, 122, 123));
  EXPECT_THAT(load_bytes({.dim = 1, .begin = 3, .size = 3}, 3), ::testing::ElementsAre(109, 110, 111, 121, 122, 123));
}

TEST_F(StoredFourWays, RefusesOtherLayouts) {
  const ScaledStorage scaled{.scale = "int8.scale", .block_rows = 1, .block_cols = 6};
  expect_error(load({{.tensor = "int8", .shape = {4, 6}}}, 4, 6), StatusCode::kUnimplemented,
               {"\"int8\"", "dtype is I8", "F32, F16, BF16"});
  expect_error(load({{.tensor = "plain", .shape = {4, 6}, .storage = scaled}}, 4, 6), StatusCode::kUnimplemented,
               {"\"plain\"", "dtype is F32", "F8_E4M3, F8_E5M2, I8"});
  expect_error(load({{.tensor = "conv1d", .shape = {6, 4}, .storage = TransposedStorage{}}}, 6, 4),
               StatusCode::kInvalidArgument, {"\"conv1d\"", "[6, 4]", "[4, 6]"});
  expect_error(load({{.tensor = "int8", .shape = {4, 6}, .storage = ScaledStorage{.scale = "int8.scales"}}}, 4, 6),
               StatusCode::kNotFound, {"\"int8.scales\" is missing", "int8.scale"});
  const std::vector<WeightSpec> packed{
      {.name = "w",
       .type = {ir::DType::kUInt8, {4, 6}},
       .parts = {
           {.tensor = "int8", .shape = {4, 6}, .storage = PackedStorage{.tensor_shape = {4, 6}, .row_stride = 6}}}}};
  const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
  expect_error(Weights::load(packed, checkpoint_source(*Checkpoint::open(dir_.path())), *device, false),
               StatusCode::kUnimplemented, {"\"int8\"", "dtype is I8", "U8"});
}

// Weights are mapped when the checkpoint is opened and read later. A file that shrinks in between must not end the
// process by a signal, and no zeros may pass for weights.
class ShrinkingCheckpoint : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 64;
  static constexpr std::int64_t kCols = 1024;  // 256 KiB, which are many pages

  // Opens the checkpoint, halves its file, and loads the tensor.
  void expect_data_loss(const std::string& file, const std::string& tensor) {
    Checkpoint checkpoint = *Checkpoint::open(file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    const std::vector<WeightSpec> specs{{.name = "w",
                                         .type = {ir::DType::kFloat32, {kRows, kCols}},
                                         .parts = {{.tensor = tensor, .shape = {kRows, kCols}}}}};
    const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
    expect_error(Weights::load(specs, checkpoint_source(std::move(checkpoint)), *device, false), StatusCode::kDataLoss,
                 {file});
  }

  const std::vector<float> values_ = std::vector<float>(kRows * kCols, 1.0F);
  const test::ScratchDir dir_;
};

TEST_F(ShrinkingCheckpoint, OfSafetensorsIsAnError) {
  const std::vector<StoredTensor> tensors = {
      {"w", StoredDtype::kF32, {kRows, kCols}, std::as_bytes(std::span(values_))}};
  const std::string file = dir_.path() + "/model.safetensors";
  ASSERT_TRUE(write_safetensors(file, tensors).ok());
  expect_data_loss(file, "w");
}

TEST_F(ShrinkingCheckpoint, OfGgufIsAnError) {
  test::GgufBytes bytes;
  bytes.start(1, 1).pair("general.architecture", "qwen3").tensor("output.weight", {kCols, kRows}, BlockType::kF32, 0);
  bytes.pad().raw({reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)});
  expect_data_loss(dir_.write("m.gguf", bytes.string()), "lm_head.weight");
}

}  // namespace
}  // namespace tessera
