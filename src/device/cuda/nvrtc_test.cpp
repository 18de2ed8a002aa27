// Catches: an error that does not name the missing compiler, and compiler messages that are lost.
#include "tessera/device/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(Nvrtc, CompilesOrSaysWhatIsMissing) {
  const Result<const Nvrtc*> nvrtc = Nvrtc::load();
  if (!nvrtc.ok()) {
    EXPECT_EQ(nvrtc.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(nvrtc.status().message(), AllOf(HasSubstr("NVRTC"), HasSubstr("libnvrtc.so.13")));
    GTEST_SKIP() << nvrtc.status().message();
  }
  const Result<std::string> code = (*nvrtc)->compile("extern \"C\" __global__ void f(int* x) { *x = 1; }", "f", 90);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  EXPECT_THAT(*code, HasSubstr("ELF"));
  EXPECT_THAT((*nvrtc)->compile("int f( { }", "broken", 90).status().message(),
              AllOf(HasSubstr("broken for sm_90"), HasSubstr("error")));
  EXPECT_FALSE((*nvrtc)->compile("", "f", 1).ok());
  EXPECT_THAT((*nvrtc)->version(), AnyOf(HasSubstr("13."), HasSubstr("12.")));
}

}  // namespace
}  // namespace tessera
