// Catches: a name that makes the wrong compiler, or an unknown name that is accepted.
#include "tessera/compile/compiler_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CompilerRegistryTest : public ::testing::Test {
 protected:
  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  CompilerContext context_{.device = *device_, .ops = built_in_ops(), .kernels = cpu_kernels()};
};

TEST_F(CompilerRegistryTest, MakesACompilerByItsName) {
  EXPECT_EQ((*built_in_compilers().make("eager", context_))->name(), "eager");
}

TEST_F(CompilerRegistryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  CompilerRegistry compilers = built_in_compilers();
  (void)compilers.add("mine", [](const CompilerContext&) { return unimplemented("not today"); });
  const Status status = compilers.make("fusd", context_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"fusd\""), HasSubstr("eager, fused, mine")));
  EXPECT_TRUE(compilers.check("mine").ok());
  EXPECT_THAT(compilers.make("mine", context_).status().message(), HasSubstr("not today"));
}

TEST_F(CompilerRegistryTest, ATakenNameIsRefused) {
  CompilerRegistry compilers = built_in_compilers();
  const Status status = compilers.add("eager", [](const CompilerContext&) { return unimplemented("another"); });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("\"eager\""));
  EXPECT_TRUE(compilers.make("eager", context_).ok()) << "the one that was there stays";
}

}  // namespace
}  // namespace tessera
