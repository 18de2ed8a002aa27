// Catches: a variable of SGLang that is silently ignored or overrides a flag; a warning about a variable whose value
// changes nothing; a message that does not name the flag to use.
#include "tessera/cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

Environment environment(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

std::vector<std::string> warnings(const Variables& variables) { return environment_warnings(environment(variables)); }

TEST(EnvironmentWarnings, NameTheVariableAndWhatToUse) {
  EXPECT_THAT(warnings({{"SGLANG_ENABLE_TORCH_COMPILE", "1"}}),
              ElementsAre(AllOf(HasSubstr("SGLANG_ENABLE_TORCH_COMPILE=1"), HasSubstr("use --enable-torch-compile"))));
}

TEST(EnvironmentWarnings, NothingIsSaidIfNothingIsAskedFor) {
  EXPECT_THAT(warnings({}), IsEmpty());
  EXPECT_THAT(warnings({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "1"}}), IsEmpty()) << "it has its effect";
  for (const char* off : {"", "0", "false", "False"})
    EXPECT_THAT(warnings({{"SGLANG_ENABLE_TORCH_COMPILE", off}}), IsEmpty());
}

CommandLine parsed(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"generate", "--model-path", "m", "--prompt", "x"});
  Result<CommandLine> line = parse_command_line(shared_built_ins(), flags);
  EXPECT_TRUE(line.ok()) << line.status().to_string();
  return line.ok() ? *std::move(line) : CommandLine{};
}
const EngineOptions& engine(const CommandLine& line) { return std::get<GenerateOptions>(line.command).engine; }
FlagValue value_of(const CommandLine& line, std::string_view flag) {
  for (const FlagValue& value : line.values)
    if (value.flag == flag) return value;
  ADD_FAILURE() << flag << " is no flag";
  return {};
}

TEST(TakenEnvironment, SetsTheValuesOfFlags) {
  CommandLine line = parsed({});
  EXPECT_FALSE(engine(line).graphs.vit_cuda_graph);
  ASSERT_TRUE(
      take_environment(environment({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "1"}, {"SGLANG_VLM_CACHE_SIZE_MB", "64"}}), line)
          .ok());
  EXPECT_TRUE(engine(line).graphs.vit_cuda_graph);
  EXPECT_EQ(engine(line).image_cache_bytes, std::int64_t{64} << 20);
  EXPECT_EQ(value_of(line, "--enable-vit-cuda-graph").value, Json(true));
  EXPECT_EQ(value_of(line, "--enable-vit-cuda-graph").source, FlagSource::kEnvironment);
  EXPECT_EQ(value_of(line, "--image-cache-bytes").source, FlagSource::kEnvironment);
}

TEST(TakenEnvironment, FlagsOverrideIt) {
  CommandLine line = parsed({"--enable-vit-cuda-graph=false", "--image-cache-bytes", "1M"});
  ASSERT_TRUE(
      take_environment(environment({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "1"}, {"SGLANG_VLM_CACHE_SIZE_MB", "64"}}), line)
          .ok());
  EXPECT_FALSE(engine(line).graphs.vit_cuda_graph);
  EXPECT_EQ(engine(line).image_cache_bytes, 1 << 20);
  EXPECT_EQ(value_of(line, "--enable-vit-cuda-graph").source, FlagSource::kCommandLine);
}

TEST(TakenEnvironment, ChangesNothingIfNothingIsAskedFor) {
  for (const char* off : {"", "0", "false", "False"}) {
    CommandLine line = parsed({});
    ASSERT_TRUE(
        take_environment(environment({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", off}, {"SGLANG_VLM_CACHE_SIZE_MB", ""}}), line)
            .ok());
    EXPECT_FALSE(engine(line).graphs.vit_cuda_graph) << off;
    EXPECT_EQ(engine(line).image_cache_bytes, 0);
    EXPECT_EQ(value_of(line, "--enable-vit-cuda-graph").source, FlagSource::kDefault);
  }
}

TEST(TakenEnvironment, RefusesOtherValues) {
  CommandLine line = parsed({});
  const auto message = [&](const Variables& variables) {
    return take_environment(environment(variables), line).message();
  };
  EXPECT_THAT(message({{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "maybe"}}),
              AllOf(HasSubstr("SGLANG_VIT_ENABLE_CUDA_GRAPH=maybe"), HasSubstr("accepted; 1, true, 0")));
  for (const char* wrong : {"0", "-1", "64M", "much"})
    EXPECT_THAT(message({{"SGLANG_VLM_CACHE_SIZE_MB", wrong}}),
                AllOf(HasSubstr("SGLANG_VLM_CACHE_SIZE_MB in the environment"), HasSubstr(wrong)));
}

}  // namespace
}  // namespace tessera::cli
