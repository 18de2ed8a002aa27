// Tests the buffer that collects a step's host data and uploads it to the device. Catches: bytes of a step that do not
// reach the device; more copies than the written ranges need; an upload that changes the device's bytes between two
// ranges; bytes of a failed upload that the next upload leaves out.
#include "tessera/ops/contract/step_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/device/testing/fake_device.h"

namespace tessera {
namespace {

class StepBufferTest : public ::testing::Test {
 protected:
  void write(std::size_t offset, std::uint8_t value, std::size_t bytes) {
    std::memset(step_.host(offset), value, bytes);
    step_.written(offset, bytes);
  }
  int at(std::size_t offset) {
    std::uint8_t value = 0xee;
    EXPECT_TRUE(stream_->download(&value, step_.device_address(offset), 1).ok());
    return value;
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  StepBuffer step_;
};

TEST_F(StepBufferTest, StartsWithZerosAndUploadsWhatWasWritten) {
  const std::size_t first = step_.reserve(10);
  const std::size_t second = step_.reserve(300);
  const std::size_t third = step_.reserve(1);
  EXPECT_GE(second, first + 10);
  EXPECT_GE(third, second + 300);
  ASSERT_TRUE(step_.allocate(*device_, *stream_).ok());
  EXPECT_EQ(at(first), 0);
  write(third, 3, 1);
  write(first, 1, 10);
  EXPECT_EQ(at(first), 0) << "not before the upload";
  ASSERT_TRUE(step_.upload(*stream_).ok());
  EXPECT_EQ(at(first + 9), 1);
  EXPECT_EQ(at(second), 0);
  EXPECT_EQ(at(third), 3);
}

TEST_F(StepBufferTest, NearRangesAreOneCopyDistantOnesTwo) {
  const std::size_t near = step_.reserve(1000);
  const std::size_t gap = step_.reserve(100 << 10);
  const std::size_t far = step_.reserve(1000);
  ASSERT_TRUE(step_.allocate(*device_, *stream_).ok());
  const auto copies = [&] {
    const std::int64_t before = device_->counts().calls;
    EXPECT_TRUE(step_.upload(*stream_).ok());
    return device_->counts().calls - before;
  };
  write(near + 800, 1, 10);
  write(near, 1, 10);
  EXPECT_EQ(copies(), 1);
  EXPECT_EQ(copies(), 0) << "nothing was written since";
  write(near, 2, 10);
  write(far, 2, 10);
  EXPECT_EQ(copies(), 2);
  EXPECT_EQ(at(near), 2);
  EXPECT_EQ(at(gap), 0);
  EXPECT_EQ(at(far), 2);
}

TEST_F(StepBufferTest, TheNextUploadIncludesTheFailedOnes) {
  const std::size_t offset = step_.reserve(64);
  ASSERT_TRUE(step_.allocate(*device_, *stream_).ok());
  write(offset, 5, 64);
  device_->set_plan({.lost_from = 1});
  EXPECT_FALSE(step_.upload(*stream_).ok());
  device_->set_plan({});
  ASSERT_TRUE(step_.upload(*stream_).ok());
  EXPECT_EQ(at(offset), 5);
}

}  // namespace
}  // namespace tessera
