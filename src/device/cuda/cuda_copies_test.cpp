// Tests how bytes are copied to the GPU and back: through the staging ring or from pinned memory, and on which streams.
// The tests use a fake driver in host memory, so they run on any machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/staging.h"
#include "tessera/device/cuda/testing/fake_driver.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Bug caught: uploads that wait for the stream although the ring has room, or that overwrite data that was not yet
// copied.
TEST(CudaCopies, StagingWaitsOnlyWhereTheRingIsFull) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  constexpr std::size_t kRing = StagingRing::kSegments * StagingRing::kSegmentBytes;
  std::unique_ptr<Allocation> memory = device->allocate(2 * kRing, "x").value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::vector<std::byte> host(2 * kRing);
  ASSERT_TRUE(stream->upload(memory->data(), host.data(), kRing).ok());
  EXPECT_EQ(fake.calls("cuEventSynchronize"), 0);
  ASSERT_TRUE(stream->upload(memory->data(), host.data(), 1).ok());
  EXPECT_EQ(fake.calls("cuEventSynchronize"), 1);
  ASSERT_TRUE(stream->upload(memory->data(), host.data(), 2 * kRing).ok());
  EXPECT_EQ(fake.calls("cuEventSynchronize"), 1 + 2 * static_cast<int>(StagingRing::kSegments));
  EXPECT_EQ(fake.calls("cuStreamSynchronize"), 0);
}

// Bug caught: a side stream that accepts copies between host and device, although synchronize() does not wait for them.
TEST(CudaCopies, ASideStreamRefusesHostCopies) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  const std::unique_ptr<Allocation> memory = *device->allocate(64, "weights");
  const std::unique_ptr<HostAllocation> pinned = *device->allocate_host(64, "batch");
  const std::unique_ptr<Stream> stream = *device->create_stream("main");
  Stream& side = **stream->side();
  std::array<std::byte, 64> ordinary{};
  for (void* const host : {static_cast<void*>(pinned->data()), static_cast<void*>(ordinary.data())}) {
    EXPECT_THAT(side.upload(memory->data(), host, 64).message(), HasSubstr("cannot copy to or from the host"));
    EXPECT_THAT(side.download(host, memory->data(), 64).message(), HasSubstr("cannot copy to or from the host"));
  }
  EXPECT_TRUE(side.fill(memory->data(), 1, 64).ok());
}

// Bug caught: pinned memory that is copied twice, or read before the stream reaches the copy.
TEST(CudaCopies, PinnedMemoryIsNotStaged) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Allocation> memory = device->allocate(1 << 20, "x").value();
  std::unique_ptr<HostAllocation> from = device->allocate_host(1 << 20, "from").value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  ASSERT_TRUE(stream->upload(memory->data(), from->data(), 1 << 20).ok());
  EXPECT_EQ(fake.calls("cuMemcpyHtoDAsync"), 1);
  from->data()[7] = std::byte{42};
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(memory->data().raw()[7], std::byte{42});
  // A range that begins in pinned memory but ends outside it counts as ordinary memory.
  EXPECT_FALSE(device->is_pinned(from->data() + 1, 1 << 20));
  EXPECT_TRUE(device->is_pinned(from->data() + 1, (1 << 20) - 1));
}

// Bug caught: a distance between rows that the driver refuses, and rows that are copied one by one without need.
TEST(CudaCopies, RowsTooFarApartAreCopiedOneByOne) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  constexpr std::int64_t kPitch = FakeDriver::kLargestPitch;
  const std::unique_ptr<Allocation> memory = *device->allocate(3 * (kPitch + 1), "states");
  const std::unique_ptr<Stream> stream = *device->create_stream("main");
  ASSERT_TRUE(stream->fill(memory->data(), 1, 8).ok());
  ASSERT_TRUE(stream->copy_rows(memory->data() + 64, memory->data(), 8, kPitch, 3).ok());
  EXPECT_EQ(fake.calls("cuMemcpy2DAsync"), 1);
  EXPECT_EQ(fake.calls("cuMemcpyDtoDAsync"), 0);
  ASSERT_TRUE(stream->copy_rows(memory->data() + 64, memory->data(), 8, kPitch + 1, 3).ok());
  EXPECT_EQ(fake.calls("cuMemcpy2DAsync"), 1);
  EXPECT_EQ(fake.calls("cuMemcpyDtoDAsync"), 3);
}

}  // namespace
}  // namespace tessera
