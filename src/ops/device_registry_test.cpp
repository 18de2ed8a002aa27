// Catches: device names that are misread; a device or kernel that silently replaces another; a backend that is loaded
// before its first use; a missing or incompatible CUDA library that causes something other than an error message.
#include "tessera/ops/device_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/fake_device.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceChoice seen;

Result<std::unique_ptr<Device>> create_remembering(const DeviceChoice& choice) {
  seen = choice;
  return TRY(FakeDevice::create({}, {.threads = 1}));
}

const KernelTable& no_kernels() {
  static const KernelTable table(std::vector<KernelDef>{});
  return table;
}

const Backend kRemembering{.create_device = create_remembering, .kernels = no_kernels};

TEST(DeviceRegistry, NamesChooseTypeOrdinalAndCapability) {
  DeviceRegistry devices;
  ASSERT_TRUE(devices.add({.name = "cpu", .load = [] { return Result<const Backend*>(&kRemembering); }}).ok());
  ASSERT_TRUE(
      devices.add({.name = "cuda", .takes_choice = true, .load = [] { return Result<const Backend*>(&kRemembering); }})
          .ok());
  const struct {
    const char* name;
    int ordinal;
    int act_as;
  } cases[] = {{"cpu", 0, 0},         {"cuda", 0, 0},          {"cuda:0", 0, 0},      {"cuda:13", 13, 0},
               {"cuda,sm_80", 0, 80}, {"cuda:2,sm_89", 2, 89}, {"cuda:9999", 9999, 0}};
  for (const auto& c : cases) {
    EXPECT_TRUE(devices.check_name(c.name).ok()) << c.name;
    ASSERT_TRUE(devices.open(c.name).ok()) << c.name;
    EXPECT_EQ(seen.ordinal, c.ordinal) << c.name;
    EXPECT_EQ(seen.act_as, c.act_as) << c.name;
  }
  for (const char* name :
       {"", "cuda,", "cuda,sm_", "cuda,sm_75", "cuda,80", "cuda:1,sm_80x", "cuda:1 ,sm_80", "CPU", "cpu:0", "gpu",
        "cuda:", "cuda:x", "cuda:1x", "cuda: 1", "cuda:-1", "cuda1", "cuda:99999999999999999999"}) {
    const Status status = devices.check_name(name);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("cpu, cuda and cuda:N"))) << name;
    EXPECT_EQ(devices.open(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(DeviceRegistry, RanksGetConsecutiveDevicesFromTheNamedOne) {
  DeviceRegistry devices;
  ASSERT_TRUE(
      devices.add({.name = "cuda", .takes_choice = true, .load = [] { return Result<const Backend*>(&kRemembering); }})
          .ok());
  ASSERT_TRUE(devices.open("cuda:2,sm_89", {.rank = 3, .ranks = 4}).ok());
  EXPECT_EQ(seen.ordinal, 5);
  EXPECT_EQ(seen.act_as, 89);
  EXPECT_EQ(seen.ranks, 4);

  const DeviceRegistry built_in = built_in_devices();
  const int alone = (*built_in.open("cpu"))->properties().threads;
  EXPECT_EQ((*built_in.open("cpu", {.rank = 1, .ranks = 2}))->properties().threads, std::max(alone / 2, 1));
}

TEST(DeviceRegistry, ABackendLoadsOnceAtItsFirstUse) {
  int loads = 0;
  DeviceRegistry devices;
  ASSERT_TRUE(devices
                  .add({.name = "slow",
                        .load = [&loads]() -> Result<const Backend*> {
                          ++loads;
                          return unimplemented("no driver");
                        }})
                  .ok());
  EXPECT_TRUE(devices.check_name("slow").ok());
  EXPECT_EQ(loads, 0);
  EXPECT_THAT(devices.open("slow").status().message(), HasSubstr("no driver"));
  EXPECT_THAT(devices.kernels("slow").status().message(), HasSubstr("no driver"));
  EXPECT_EQ(loads, 1);
}

TEST(DeviceRegistry, AddedKernelsReplaceTheBackendsOwn) {
  DeviceRegistry devices = built_in_devices();
  const KernelDef mine{.op = "add", .name = "mine", .bind = cpu_kernels().find("add")->bind};
  const KernelDef other{.op = "another", .name = "mine", .bind = mine.bind};
  ASSERT_TRUE(devices.add_kernel("cpu", mine).ok());
  ASSERT_TRUE(devices.add_kernel("cpu", other).ok());
  const Status again = devices.add_kernel("cpu", mine);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(again.message(), HasSubstr("'add'"));
  EXPECT_THAT(devices.add_kernel("npu", mine).message(), AllOf(HasSubstr("npu"), HasSubstr("cpu, cuda")));

  const KernelTable& kernels = **devices.kernels("cpu");
  EXPECT_EQ(kernels.find("add")->name, "mine");
  EXPECT_NE(kernels.find("another"), nullptr);
  EXPECT_EQ(kernels.find("mul")->name, cpu_kernels().find("mul")->name);
  EXPECT_EQ((*built_in_devices().kernels("cpu"))->find("another"), nullptr) << "other registries are untouched";
}

TEST(DeviceRegistry, ATakenNameIsRefused) {
  DeviceRegistry devices = built_in_devices();
  const Status status = devices.add({.name = "cpu", .load = [] { return Result<const Backend*>(&kRemembering); }});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"cpu\""));
}

TEST(DeviceRegistry, TheCpuIsAlwaysThere) {
  const DeviceRegistry devices = built_in_devices();
  EXPECT_EQ(&(*devices.backend("cpu"))->kernels(), &cpu_kernels());
  const std::unique_ptr<Device> device = devices.open("cpu").value();
  EXPECT_EQ(device->properties().type, "cpu");
  EXPECT_TRUE(device->properties().on_host);
}

// The test passes on any machine, because it accepts either a device or an error that says what is missing.
TEST(DeviceRegistry, CudaOpensOrSaysWhyNot) {
  const DeviceRegistry devices = built_in_devices();
  const Result<std::unique_ptr<Device>> device = devices.open("cuda");
  if (device.ok()) {
    EXPECT_EQ((*device)->properties().type, "cuda");
    EXPECT_GE((*device)->properties().compute_capability, 80);
    EXPECT_THAT(devices.open("cuda:4096").status().message(), HasSubstr("cuda:4096"));
    return;
  }
  std::printf("  %s\n", device.status().to_string().c_str());
  EXPECT_THAT(device.status().message(), ::testing::AnyOf(HasSubstr("libtessera_cuda.so"), HasSubstr("driver")));
}

}  // namespace
}  // namespace tessera
