// Catches: a variable of SGLang's that is ignored without a word, one warned about although it asks for nothing, and a
// warning that does not name what to use.
#include "tessera/cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> warnings(const std::map<std::string, std::string>& environment) {
  return environment_warnings([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(EnvironmentWarnings, NameTheVariableAndWhatToUse) {
  EXPECT_THAT(warnings({{"SGLANG_ENABLE_TORCH_COMPILE", "1"}}),
              ElementsAre(AllOf(HasSubstr("SGLANG_ENABLE_TORCH_COMPILE=1"), HasSubstr("use --enable-torch-compile"))));
  EXPECT_THAT(
      warnings({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "true"}}),
      ElementsAre(AllOf(HasSubstr("SGLANG_VIT_ENABLE_CUDA_GRAPH=true"), HasSubstr("use --enable-vit-cuda-graph"))));
  EXPECT_EQ(warnings({{"SGLANG_ENABLE_TORCH_COMPILE", "1"}, {"SGLANG_VIT_ENABLE_CUDA_GRAPH", "1"}}).size(), 2U);
}

TEST(EnvironmentWarnings, NothingIsSaidWhereNothingIsAskedFor) {
  EXPECT_THAT(warnings({}), IsEmpty());
  for (const char* off : {"", "0", "false", "False"})
    EXPECT_THAT(warnings({{"SGLANG_ENABLE_TORCH_COMPILE", off}, {"SGLANG_VIT_ENABLE_CUDA_GRAPH", off}}), IsEmpty());
}

}  // namespace
}  // namespace tessera::cli
