// Catches: a conformance suite or a test helper that works only on devices with pointers.
#include "tessera/device/testing/handle_device.h"

#include "tessera/device/testing/conformance.h"

namespace tessera {
namespace {

using testing::HandleDevice;
using testing::HandleStream;

TEST(HandleDevice, OnlyTheDeviceFindsItsMemory) {
  const std::unique_ptr<HandleDevice> device = HandleDevice::create().value();
  const std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::unique_ptr<Allocation> memory = device->allocate(64, "x").value();
  const DeviceAddress x = memory->data();
  EXPECT_EQ(device->resolve(x + 16, 48), device->resolve(x, 64) + 16);
  EXPECT_EQ(device->resolve(x + 16, 49), nullptr);
  EXPECT_EQ(device->resolve(x + 65, 0), nullptr);
  EXPECT_EQ(stream->fill(x + 16, 1, 49).code(), StatusCode::kInvalidArgument);
  memory = nullptr;
  EXPECT_EQ(device->resolve(x, 1), nullptr);
  EXPECT_EQ(stream->fill(x, 1, 1).code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Handles, DeviceConformance,
                         ::testing::Values(DeviceFactory{
                             "handles",
                             []() -> Result<std::unique_ptr<Device>> { return TRY(HandleDevice::create()); }}),
                         device_factory_name);

}  // namespace
}  // namespace tessera
