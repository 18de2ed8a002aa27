// Catches: a device name that is misread, and a missing or foreign CUDA library that ends in anything but a message.
#include "tessera/ops/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/registry.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Backend, DeviceNames) {
  EXPECT_EQ(parse_device_name("cpu").value().kind, DeviceKind::kCpu);
  EXPECT_EQ(parse_device_name("cuda").value().kind, DeviceKind::kCuda);
  EXPECT_EQ(parse_device_name("cuda").value().ordinal, 0);
  EXPECT_EQ(parse_device_name("cuda:0").value().ordinal, 0);
  EXPECT_EQ(parse_device_name("cuda:13").value().ordinal, 13);
  EXPECT_EQ(parse_device_name("cuda:13").value().act_as, 0);
  EXPECT_EQ(parse_device_name("cuda,sm_80").value().act_as, 80);
  EXPECT_EQ(parse_device_name("cuda:2,sm_89").value().ordinal, 2);
  EXPECT_EQ(parse_device_name("cuda:2,sm_89").value().act_as, 89);
  for (const char* name :
       {"", "cuda,", "cuda,sm_", "cuda,sm_75", "cuda,80", "cuda:1,sm_80x", "cuda:1 ,sm_80", "CPU", "cpu:0", "gpu",
        "cuda:", "cuda:x", "cuda:1x", "cuda: 1", "cuda:-1", "cuda1", "cuda:99999999999999999999"}) {
    const Status status = parse_device_name(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("cpu, cuda and cuda:N"))) << name;
  }
}

TEST(Backend, TheCpuIsAlwaysThere) {
  const Backend& backend = *backend_of(DeviceKind::kCpu).value();
  EXPECT_EQ(backend.kernels, &cpu_kernels());
  EXPECT_EQ(open_device("cpu").value()->properties().kind, DeviceKind::kCpu);
}

// Whatever this machine has: a device, or an error that says what is missing.
TEST(Backend, CudaOpensOrSaysWhyNot) {
  const Result<std::unique_ptr<Device>> device = open_device("cuda");
  if (device.ok()) {
    EXPECT_EQ((*device)->properties().kind, DeviceKind::kCuda);
    EXPECT_GE((*device)->properties().compute_capability, 80);
    EXPECT_THAT(open_device("cuda:4096").status().message(), HasSubstr("cuda:4096"));
    return;
  }
  std::printf("  %s\n", device.status().to_string().c_str());
  EXPECT_THAT(device.status().message(), ::testing::AnyOf(HasSubstr("libtessera_cuda.so"), HasSubstr("driver")));
}

}  // namespace
}  // namespace tessera
