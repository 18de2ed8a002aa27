// Catches: a kernel that writes past its result and is not found, or is reported with the wrong value's name; and a
// poison byte that gives a valid number instead of NaN.
#include "tessera/compile/isolated_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tessera/device/testing/fake_device.h"
#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class IsolatedMemoryTest : public ::testing::Test {
 protected:
  DeviceAddress allocate(const std::string& name, std::size_t bytes) {
    Result<DeviceAddress> address = memory_.allocate(name, bytes, *stream_);
    EXPECT_TRUE(address.ok()) << address.status().to_string();
    return address.ok() ? *address : DeviceAddress{};
  }
  void write(DeviceAddress at, std::uint8_t value = 0) { EXPECT_TRUE(stream_->upload(at, &value, 1).ok()); }
  std::string guard_error() { return memory_.check_guards(*stream_).message(); }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  IsolatedMemory memory_{*device_};
};

template <class T>
bool all_nan(const std::byte* data, std::size_t bytes) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T value;
    std::memcpy(&value, data + i, sizeof(T));
    if (!std::isnan(to_float(value))) return false;
  }
  return true;
}

TEST_F(IsolatedMemoryTest, PoisonIsNanInEveryFloatingPointType) {
  const DeviceAddress data = allocate("x", 96);
  std::vector<std::byte> bytes(96);
  ASSERT_TRUE(stream_->download(bytes.data(), data, 96).ok());
  EXPECT_TRUE(all_nan<float>(bytes.data(), 96));
  EXPECT_TRUE(all_nan<BFloat16>(bytes.data(), 96));
  EXPECT_TRUE(all_nan<Float16>(bytes.data(), 96));
}

TEST_F(IsolatedMemoryTest, WritesInsideAreNoViolation) {
  const DeviceAddress x = allocate("x", 8);
  const DeviceAddress y = allocate("y", 4);
  for (std::size_t i = 0; i < 8; ++i) write(x + i);
  for (std::size_t i = 0; i < 4; ++i) write(y + i);
  EXPECT_EQ(guard_error(), "");
}

TEST_F(IsolatedMemoryTest, NamesValueSideAndDistance) {
  struct Case {
    std::ptrdiff_t at;
    const char* words;
  };
  const auto guard = static_cast<std::ptrdiff_t>(IsolatedMemory::kGuardBytes);
  const Case cases[] = {{-1, "1 bytes before it"},
                        {-guard, "1024 bytes before it"},
                        {12, "1 bytes past it"},
                        {12 + guard - 1, "1024 bytes past it"}};
  allocate("first", 64);
  const DeviceAddress x = allocate("normed.3", 12);
  allocate("last", 64);
  for (const Case& c : cases) {
    ASSERT_TRUE(memory_.poison(*stream_).ok());
    write(x + c.at);
    EXPECT_THAT(guard_error(), AllOf(HasSubstr("%normed.3 (12 bytes)"), HasSubstr(c.words)));
  }
}

TEST_F(IsolatedMemoryTest, PoisonRestoresValuesAndGuards) {
  const DeviceAddress x = allocate("x", 4);
  write(x + -1);
  write(x);
  ASSERT_TRUE(memory_.poison(*stream_).ok());
  EXPECT_EQ(guard_error(), "");
  std::byte byte{};
  ASSERT_TRUE(stream_->download(&byte, x, 1).ok());
  EXPECT_EQ(byte, std::byte{IsolatedMemory::kPoison});
}

TEST_F(IsolatedMemoryTest, AnEmptyValueHasGuardsToo) {
  const DeviceAddress nothing = allocate("nothing", 0);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(guard_error(), "");
  write(nothing);
  EXPECT_THAT(guard_error(), HasSubstr("%nothing (0 bytes), 1 bytes past it"));
}

TEST_F(IsolatedMemoryTest, AddressesAreAlignedAndCounted) {
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(allocate("x", 100).raw()) % kDeviceAlignment, 0u);
  EXPECT_EQ(memory_.total_bytes(), 8 * static_cast<std::int64_t>(100 + 2 * IsolatedMemory::kGuardBytes));
}

TEST_F(IsolatedMemoryTest, OutOfMemoryNamesTheValueAndLeavesOthers) {
  const DeviceAddress x = allocate("x", 4);
  device_->set_plan({.out_of_memory_at = 1});
  const Result<DeviceAddress> y = memory_.allocate("y", 4, *stream_);
  EXPECT_EQ(y.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(y.status().message(), HasSubstr("'y'"));
  write(x + 4);
  EXPECT_THAT(guard_error(), HasSubstr("%x"));
}

}  // namespace
}  // namespace tessera
