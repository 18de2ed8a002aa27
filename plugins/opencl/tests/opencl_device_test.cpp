// Runs the contract tests that every backend must pass on the device, and tests of its own features. Catches: eager
// runs in place of command buffers; a command buffer that keeps contents or arguments of its recording.
#include "opened.h"
#include "tessera/device/testing/conformance.h"
#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/rows/activation.h"

namespace tessera {

INSTANTIATE_TEST_SUITE_P(OpenCl, DeviceConformance,
                         ::testing::Values(DeviceFactory{"opencl", opencl_test::open_device}), device_factory_name);

}  // namespace tessera

namespace opencl_test {
namespace {

using tessera::DeviceProperties;
using tessera::StatusCode;
namespace testing_tools = tessera::testing;

class OpenClDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (why_no_device() != nullptr) GTEST_SKIP() << why_no_device();
    auto opened = open_device();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device_ = std::move(opened).value();
  }
  std::unique_ptr<tessera::Device> device_;
};

TEST_F(OpenClDevice, IsNoHostAndHasNoPointers) {
  const DeviceProperties& properties = device_->properties();
  EXPECT_EQ(properties.type, "opencl");
  EXPECT_FALSE(properties.name.empty());
  EXPECT_FALSE(properties.on_host);
  EXPECT_FALSE(properties.has_pointers);
  EXPECT_FALSE(properties.arenas_grow);
  EXPECT_GT(properties.memory_bytes, 0);
}

// Launches one command buffer three times, each time with other contents of its operand. Before the launches a second
// operator is recorded, so that a command buffer which used the last arguments of a shared kernel would be found.
TEST_F(OpenClDevice, ACommandBufferReadsCurrentContents) {
  using testing_tools::OpCase;
  const tessera::KernelTable* kernels = (*registry())->devices.kernels("opencl").value();
  const tessera::KernelDef* kernel = kernels->get("silu").value();
  const tessera::ForwardContext context;
  const auto contents = [](std::uint32_t seed) {
    return std::vector{testing_tools::random_tensor(tessera::ir::DType::kFloat32, {3, 50}, seed, -4, 4)};
  };
  auto op = OpCase::create(*device_, tessera::kSilu, *kernel, contents(0), {}, context);
  ASSERT_TRUE(op.ok()) << op.status().to_string();
  auto other = OpCase::create(*device_, tessera::kSilu, *kernel, contents(9), {}, context);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  ASSERT_TRUE((*op)->load(contents(0)).ok());
  const tessera::Status recorded = (*op)->record();
  ASSERT_TRUE(recorded.ok()) << recorded.to_string() << "; CI needs cl_khr_command_buffer (pocl-opencl-icd)";
  ASSERT_TRUE((*other)->record().ok());
  EXPECT_EQ((*op)->recorded_nodes(), 1);
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<testing_tools::HostTensor> operands = contents(seed);
    ASSERT_TRUE((*op)->load(operands).ok());
    ASSERT_TRUE((*op)->replay().ok());
    std::vector<double> expected = operands[0].values();
    for (double& x : expected) x = x / (1 + std::exp(-x));
    testing_tools::expect_close((*(*op)->results())[0], expected, {1e-6, 2e-6}, "silu");
  }
}

TEST_F(OpenClDevice, SaysHowMuchMemoryIsLeft) {
  const std::int64_t before = device_->available_bytes();
  auto memory = device_->allocate(1 << 20, "some");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(device_->available_bytes(), before - (1 << 20));
  const auto too_much = device_->allocate(static_cast<std::size_t>(before), "the cache");
  EXPECT_EQ(too_much.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(too_much.status().message(), ::testing::HasSubstr("the cache"));
  memory->reset();
  EXPECT_EQ(device_->available_bytes(), before);
}

TEST_F(OpenClDevice, ErrorsNameWhatIsMissing) {
  const auto opened = (*registry())->devices.open("opencl:99");
  EXPECT_EQ(opened.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(opened.status().message(), ::testing::HasSubstr("99"));
}

// Checks that an operator without a kernel is named in the error.
TEST_F(OpenClDevice, RefusesByName) {
  const tessera::KernelTable* kernels = (*registry())->devices.kernels("opencl").value();
  EXPECT_THAT(kernels->get("moe_experts").status().message(), ::testing::HasSubstr("moe_experts"));
}

}  // namespace
}  // namespace opencl_test
