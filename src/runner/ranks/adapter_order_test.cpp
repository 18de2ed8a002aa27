// Catches: a rank's share of an adapter that changes on its way to the rank; a share that the wrong rank uses; and a
// read past the end of a message.
#include "tessera/runner/ranks/adapter_order.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

constexpr const char* kModule = "model.layers.0.q_proj";

// Divides the four rows of q among three ranks. They get two rows, one row and one row.
AdapterLayout layout_of(std::size_t rank) {
  const auto of_rank = [](std::int64_t first, std::int64_t rows) {
    return std::vector<AdaptableLinear>{
        {.weight = "q.weight", .cols = 2, .modules = {{kModule, 4, 2}}, .ranges = {{0, first, rows}}}};
  };
  return *AdapterLayout::create({of_rank(0, 2), of_rank(2, 1), of_rank(3, 1)}, rank, {.slots = 2, .max_rank = 2},
                                ir::DType::kFloat32);
}

class AdapterOrder : public ::testing::Test {
 protected:
  AdapterOrder() {
    const test::ScratchDir folder;
    const std::vector<float> values{1, 2, 3, 4};
    const auto tensor = [&](const std::string& matrix, std::vector<std::int64_t> shape, std::size_t count) {
      return StoredTensor{.name = std::string("base_model.model.") + kModule + "." + matrix,
                          .dtype = StoredDtype::kF32,
                          .shape = std::move(shape),
                          .data = std::as_bytes(std::span(values).first(count))};
    };
    const std::vector<StoredTensor> tensors{tensor("lora_A.weight", {1, 2}, 2), tensor("lora_B.weight", {4, 1}, 4)};
    EXPECT_TRUE(write_safetensors(folder.path() + "/adapter_model.safetensors", tensors).ok());
    folder.write("adapter_config.json", R"({"r": 1, "lora_alpha": 3})");
    adapter_ = *Adapter::load(folder.path(), layout_of(0), *device_);
    MessageWriter writer(message_, 23, 1);
    pack_shares(*adapter_, writer);
    writer.finish();
  }
  Result<AdapterShare> unpacked(std::span<const std::byte> message, std::size_t rank) {
    MessageReader reader = TRY(MessageReader::open(message));
    return unpack_share(reader, layout_of(rank), *device_);
  }

  std::unique_ptr<Device> device_ = std::move(CpuDevice::create({})).value();
  std::shared_ptr<const Adapter> adapter_;
  std::vector<std::byte> message_;
};

TEST_F(AdapterOrder, EachRankReadsItsOwnShare) {
  for (const std::size_t rank : {1U, 2U}) {
    const Result<AdapterShare> share = unpacked(message_, rank);
    ASSERT_TRUE(share.ok()) << share.status().message();
    const AdapterShare& sent = adapter_->share(rank);
    EXPECT_TRUE(std::ranges::equal(share->bytes(), sent.bytes())) << rank;
    EXPECT_EQ(share->linears()[0].ranks, sent.linears()[0].ranks);
    EXPECT_EQ(share->linears()[0].scales, (std::vector<float>{3}));
    EXPECT_EQ(share->linears()[0].b_offset, sent.linears()[0].b_offset);
  }
  EXPECT_FALSE(std::ranges::equal(adapter_->share(1).bytes(), adapter_->share(2).bytes()));
}

TEST_F(AdapterOrder, EveryTruncatedMessageIsAnError) {
  for (std::size_t bytes = kMessageHeaderBytes; bytes < message_.size(); bytes += 8) {
    std::vector<std::byte> cut(message_.begin(), message_.begin() + static_cast<std::ptrdiff_t>(bytes));
    const std::uint64_t size = cut.size();  // the size in the header must agree with the cut message
    std::memcpy(cut.data() + 24, &size, sizeof(size));
    EXPECT_EQ(unpacked(cut, 1).status().code(), StatusCode::kDataLoss) << bytes;
  }
}

TEST_F(AdapterOrder, AShareOfAnotherFormIsRefused) {
  AdapterLayout two = *AdapterLayout::create({layout_of(0).linears_of(0), layout_of(0).linears_of(1)}, 1,
                                             {.slots = 2, .max_rank = 2}, ir::DType::kFloat32);
  MessageReader reader = MessageReader::open(message_).value();
  EXPECT_THAT(unpack_share(reader, two, *device_).status().message(),
              ::testing::HasSubstr("an adapter for 3 ranks; there are 2"));
  const AdapterLinearPart part{.ranks = {1}, .scales = {3}};
  const std::vector<std::byte> few(8);
  EXPECT_EQ(AdapterShare::copy(layout_of(1), {part}, few, *device_).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(AdapterShare::copy(layout_of(1), {}, few, *device_).status().code(), StatusCode::kDataLoss);
  const AdapterLinearPart large{.ranks = {3}, .scales = {3}};
  EXPECT_EQ(AdapterShare::copy(layout_of(1), {large}, few, *device_).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tessera
