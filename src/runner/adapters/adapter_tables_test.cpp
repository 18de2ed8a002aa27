// Catches: an adapter that is written to the place of another slot; ranks of an old adapter that remain when another
// adapter takes its slot; and tables whose size differs from bytes_needed().
#include "tessera/runner/adapters/adapter_tables.h"

#include <gmock/gmock.h>

#include <cstring>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/adapters/adapted_graphs.h"

namespace tessera {
namespace {

AdapterLayout layout() {
  const AdaptableLinear linear{.weight = "w",
                               .cols = 2,
                               .modules = {{"model.layers.0.q", 3, 2}, {"model.layers.0.k", 1, 2}},
                               .ranges = {{0, 0, 3}, {1, 0, 1}}};
  return *AdapterLayout::create({{linear}}, 0, {.slots = 2, .max_rank = 2}, ir::DType::kFloat32);
}

// Returns an adapter of rank 1 for one module. All values of its matrices are `value`.
std::shared_ptr<const Adapter> adapter_of(const std::string& module, std::int64_t rows, float value, Device& device) {
  const test::ScratchDir folder;
  const std::vector<float> values(8, value);
  const auto tensor = [&](const std::string& matrix, std::vector<std::int64_t> shape, std::size_t count) {
    return StoredTensor{.name = "base_model.model." + module + "." + matrix,
                        .dtype = StoredDtype::kF32,
                        .shape = std::move(shape),
                        .data = std::as_bytes(std::span(values).first(count))};
  };
  const std::vector<StoredTensor> tensors{tensor("lora_A.weight", {1, 2}, 2),
                                          tensor("lora_B.weight", {rows, 1}, static_cast<std::size_t>(rows))};
  EXPECT_TRUE(write_safetensors(folder.path() + "/adapter_model.safetensors", tensors).ok());
  folder.write("adapter_config.json", R"({"r": 1, "lora_alpha": 3})");
  return *Adapter::load(folder.path(), layout(), device);
}

class AdapterTablesTest : public ::testing::Test {
 protected:
  template <class T>
  std::vector<T> read(const AdapterTables& tables, AdapterTable table, std::size_t count) {
    ExternalValues externals;
    tables.add_to(externals);
    std::vector<T> values(count);
    const DeviceAddress from = externals.find(adapter_input(tables.layout().linears()[0], table), {});
    EXPECT_TRUE(stream_->download(values.data(), from, count * sizeof(T)).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return values;
  }
  template <class T>
  std::vector<T> read(AdapterTable table, std::size_t count) {
    return read<T>(*tables_, table, count);
  }

  std::unique_ptr<Device> device_ = std::move(CpuDevice::create({})).value();
  std::unique_ptr<Stream> stream_ = *device_->create_stream("test");
  const AdapterLayout layout_ = layout();
  std::unique_ptr<AdapterTables> tables_ = *AdapterTables::create(layout_, *device_, *stream_);
};

TEST_F(AdapterTablesTest, WritesEachSlotToItsPlace) {
  ASSERT_TRUE(tables_->write(1, adapter_of("model.layers.0.k", 1, 7, *device_)->share(0), *stream_).ok());
  ASSERT_TRUE(tables_->write(0, adapter_of("model.layers.0.q", 3, 5, *device_)->share(0), *stream_).ok());
  EXPECT_EQ(read<std::int32_t>(AdapterTable::kRanks, 4), (std::vector<std::int32_t>{1, 0, 0, 1}));
  EXPECT_EQ(read<float>(AdapterTable::kScales, 4), (std::vector<float>{3, 0, 0, 3}));
  // The shape of A is [2 slots, 2 modules of 2 rows, 2 columns]. Only row 0 of q in slot 0 and row 0 of k in slot 1 are
  // not zero.
  EXPECT_EQ(read<float>(AdapterTable::kA, 16), (std::vector<float>{5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 0, 0}));
  // The shape of B is [2 slots, 2 rows, 4 columns].
  EXPECT_EQ(read<float>(AdapterTable::kB, 16), (std::vector<float>{5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0}));
}

TEST_F(AdapterTablesTest, LeavesNothingOfAnEarlierAdapter) {
  ASSERT_TRUE(tables_->write(0, adapter_of("model.layers.0.q", 3, 5, *device_)->share(0), *stream_).ok());
  ASSERT_TRUE(tables_->write(0, adapter_of("model.layers.0.k", 1, 7, *device_)->share(0), *stream_).ok());
  EXPECT_EQ(read<std::int32_t>(AdapterTable::kRanks, 2), (std::vector<std::int32_t>{0, 1}));
}

TEST_F(AdapterTablesTest, TakesThePredictedMemory) {
  EXPECT_EQ(tables_->bytes(), *AdapterTables::bytes_needed(layout_));
}

TEST_F(AdapterTablesTest, WritesWholeMatricesToTheirSlot) {
  const AdaptableLinear head{.weight = "w", .cols = 2, .modules = {{"lm_head", 3, 2}}, .ranges = {{0, 0, 3}}};
  const AdapterLayout layout =
      *AdapterLayout::create({{head}}, 0, {.slots = 2, .saved = {"lm_head"}}, ir::DType::kFloat32);
  const std::unique_ptr<AdapterTables> tables = *AdapterTables::create(layout, *device_, *stream_);
  EXPECT_EQ(tables->bytes(), *AdapterTables::bytes_needed(layout));
  const test::ScratchDir folder;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const StoredTensor tensor{.name = "base_model.model.lm_head.weight",
                            .dtype = StoredDtype::kF32,
                            .shape = {3, 2},
                            .data = std::as_bytes(std::span(values))};
  ASSERT_TRUE(write_safetensors(folder.path() + "/adapter_model.safetensors", std::vector{tensor}).ok());
  folder.write("adapter_config.json", R"({"r": 1, "modules_to_save": ["lm_head"]})");
  const Result<std::shared_ptr<const Adapter>> adapter = Adapter::load(folder.path(), layout, *device_);
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  ASSERT_TRUE(tables->write(1, (*adapter)->share(0), *stream_).ok());
  EXPECT_EQ(read<std::int32_t>(*tables, AdapterTable::kRanks, 2), (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(read<float>(*tables, AdapterTable::kA, 12), (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(AdapterTablesTest, RefusesASlotThatDoesNotExist) {
  const Status status = tables_->write(2, adapter_of("model.layers.0.q", 3, 5, *device_)->share(0), *stream_);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera
