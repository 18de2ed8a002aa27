// Catches: a flag from launch commands of SGLang or vLLM that is accepted but has another effect than this program's
// flag for the same purpose.
#include "tessera/options/foreign_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Result<CommandLine> parse_foreign(std::vector<std::string> words) {
  words.insert(words.begin(), {"serve", "--model-path", testing::data_path("goldens/llama")});
  return parse_command_line(shared_built_ins(), words);
}

// Checks that each foreign flag sets the same option as this program's flag for the same purpose.
TEST(ForeignFlags, MeanTheSameAsOurFlags) {
  const auto engine = [](const std::vector<std::string>& words) {
    const Result<CommandLine> line = parse_foreign(words);
    EXPECT_TRUE(line.ok()) << line.status().message();
    return line.ok() ? std::get<ServeOptions>(line->command).engine : EngineOptions{};
  };
  EXPECT_EQ(engine({"--max-model-len", "100"}).context_length, 100);
  EXPECT_EQ(engine({"--max-model-len", "32k"}).context_length, 32'000);
  EXPECT_EQ(engine({"--context-length", "32K"}).context_length, 32'768);
  EXPECT_EQ(engine({"--max-num-batched-tokens", "8K"}).chunked_prefill_size, 8192);
  EXPECT_EQ(engine({"--max-num-seqs", "3"}).max_running_requests, 3);
  EXPECT_EQ(engine({"--max-num-batched-tokens", "64"}).chunked_prefill_size, 64);
  EXPECT_EQ(engine({"--gpu-memory-utilization", "0.5"}).mem_fraction_static, 0.5);
  EXPECT_TRUE(engine({"--enforce-eager"}).graphs.disable_cuda_graph);
  EXPECT_TRUE(engine({"--no-enable-prefix-caching"}).disable_radix_cache);
  EXPECT_TRUE(engine({"--enable-prefix-caching=false"}).disable_radix_cache);
  EXPECT_FALSE(engine({"--enable-prefix-caching"}).disable_radix_cache);
  EXPECT_EQ(engine({"--disable-overlap-schedule"}).overlap_schedule, false);
  EXPECT_FALSE(engine({}).overlap_schedule.has_value());
  EXPECT_THAT(parse_foreign({"--gpu-memory-utilization", "0.5", "--mem-fraction-static", "0.5"}).status().message(),
              StartsWith("--gpu-memory-utilization is an alias of --mem-fraction-static"));
}

const std::vector<std::string> kWholeExperts[] = {
    {"--enable-expert-parallel"}, {"--enable-ep-moe"}, {"--enable-deepep-moe"}, {"--moe-a2a-backend", "deepep"}};

// Parses `words` together with `flag`, which asks for expert parallelism: each rank holds whole experts.
Result<CommandLine> parse_with(std::vector<std::string> words, const std::vector<std::string>& flag) {
  words.insert(words.end(), flag.begin(), flag.end());
  return parse_foreign(words);
}

TEST(ForeignFlags, WholeExpertsMakeOnePartPerRank) {
  const auto ep_size = [](const Result<CommandLine>& line) {
    EXPECT_TRUE(line.ok()) << line.status().message();
    return line.ok() ? std::get<ServeOptions>(line->command).engine.ep_size : 0;
  };
  for (const std::vector<std::string>& flag : kWholeExperts) {
    EXPECT_EQ(ep_size(parse_with({"--tp-size", "4"}, flag)), 4) << flag[0];
    EXPECT_EQ(ep_size(parse_with({"--tp-size", "4", "--ep-size", "4"}, flag)), 4) << flag[0];
  }
  EXPECT_EQ(ep_size(parse_foreign({"--tp-size", "4", "--ep-size", "2", "--moe-a2a-backend", "none"})), 2);
  EXPECT_EQ(ep_size(parse_foreign({"--tp-size", "4", "--ep-size", "2", "--enable-ep-moe=false"})), 2);
  EXPECT_EQ(ep_size(parse_foreign({"--tp-size", "4"})), 1);
}

// With --tp-size 4, each of the flags kWholeExperts means --ep-size 4. Another --ep-size is refused, even if its value
// is the default. The message shows the flags as the user wrote them.
TEST(ForeignFlags, WholeExpertsRefuseAnotherNumberOfParts) {
  for (const std::vector<std::string>& flag : kWholeExperts)
    for (const std::string parts : {"1", "2"}) {
      std::string words = flag[0];
      if (flag.size() > 1) words += " " + flag[1];
      EXPECT_THAT(
          parse_with({"--tp-size", "4", "--ep-size", parts}, flag).status().message(),
          StartsWith("--ep-size " + parts + " contradicts " + words + ", which sets --ep-size to --tp-size (4)"));
    }
}

TEST(ForeignFlags, WholeExpertsOnOneRankWarnThatNothingChanges) {
  for (const std::vector<std::string>& flag : kWholeExperts) {
    const Result<CommandLine> one = parse_with({}, flag);
    ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_THAT(one->warnings, ElementsAre(AllOf(StartsWith(flag[0]), HasSubstr("has no effect with --tp-size 1"))));
    const Result<CommandLine> two = parse_with({"--tp-size", "2"}, flag);
    ASSERT_TRUE(two.ok()) << two.status().message();
    for (const std::string& warning : two->warnings) EXPECT_THAT(warning, Not(HasSubstr("--tp-size 1")));
  }
}

}  // namespace
}  // namespace tessera::cli
