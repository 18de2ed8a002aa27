// Catches: a flag of SGLang's or vLLM's launch commands that is taken and does something else than the flag of ours
// that it stands for.
#include "tessera/options/foreign_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"
#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::StartsWith;

Result<CommandLine> parse(std::vector<std::string> words) {
  words.insert(words.begin(), {"serve", "--model-path", testing::data_path("goldens/llama")});
  return parse_command_line(shared_built_ins(), words);
}

// Each beside the flag of ours that it is.
TEST(ForeignFlags, HaveTheirMeaning) {
  const auto engine = [](const std::vector<std::string>& words) {
    const Result<CommandLine> line = parse(words);
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
  for (const char* whole : {"--enable-expert-parallel", "--enable-ep-moe", "--moe-a2a-backend=deepep"})
    EXPECT_EQ(engine({"--tp-size", "4", whole}).ep_size, 4) << whole;
  EXPECT_EQ(engine({"--tp-size", "4", "--ep-size", "2", "--moe-a2a-backend", "none"}).ep_size, 2);
  EXPECT_EQ(engine({"--tp-size", "4"}).ep_size, 1);
  EXPECT_THAT(parse({"--tp-size", "4", "--ep-size", "2", "--moe-a2a-backend", "deepep"}).status().message(),
              StartsWith("--ep-size: 2 goes without --moe-a2a-backend, which is taken as --ep-size 4"));
  EXPECT_EQ(engine({"--disable-overlap-schedule"}).overlap_schedule, false);
  EXPECT_FALSE(engine({}).overlap_schedule.has_value());
  EXPECT_THAT(parse({"--gpu-memory-utilization", "0.5", "--mem-fraction-static", "0.5"}).status().message(),
              StartsWith("--gpu-memory-utilization goes without --mem-fraction-static"));
}

}  // namespace
}  // namespace tessera::cli
