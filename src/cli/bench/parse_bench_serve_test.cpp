// Catches: a flag of `bench serve` that does not set its option; contradictory flags that are accepted; an error that
// does not name the flag at fault.
#include "tessera/cli/bench/parse_bench_serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<CommandLine> parse(const std::vector<std::string>& arguments) {
  return parse_command_line(shared_built_ins(), arguments);
}

TEST(ParseBenchServe, ReadsItsFlags) {
  const Result<CommandLine> line = parse({"bench",
                                          "serve",
                                          "--model-path",
                                          "m",
                                          "--num-prompts",
                                          "7",
                                          "--request-rate",
                                          "2,0.5,inf",
                                          "--arrivals",
                                          "uniform",
                                          "--input-len",
                                          "20",
                                          "--output-len",
                                          "5",
                                          "--random-range-ratio",
                                          "0.5",
                                          "--max-concurrency",
                                          "3",
                                          "--seed",
                                          "4",
                                          "--warmup",
                                          "0",
                                          "--graphs",
                                          "off,on",
                                          "--json"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const BenchServeOptions& options = std::get<BenchServeOptions>(line->command);
  EXPECT_EQ(options.engine.model_path, "m");
  EXPECT_EQ(options.load.num_prompts, 7);
  EXPECT_THAT(options.request_rates, ElementsAre(2, 0.5, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(options.load.arrivals, Arrivals::kUniform);
  EXPECT_EQ(options.load.input_tokens, 20);
  EXPECT_EQ(options.load.output_tokens, 5);
  EXPECT_EQ(options.load.range_ratio, 0.5);
  EXPECT_EQ(options.max_concurrency, 3);
  EXPECT_EQ(options.load.seed, 4U);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_THAT(options.graphs, ElementsAre(false, true));
  EXPECT_TRUE(options.json);

  const Result<CommandLine> elsewhere = parse({"bench", "serve", "--url", "http://x", "--api-key", "k", "--vocab-size",
                                               "100", "--served-model-name", "n", "--trace", "t", "--lora-name", "a",
                                               "b", "--lora-request-distribution", "skewed", "--lora-zipf-alpha", "2"});
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
  const BenchServeOptions& there = std::get<BenchServeOptions>(elsewhere->command);
  EXPECT_EQ(there.url, "http://x");
  EXPECT_EQ(there.api_key, "k");
  EXPECT_EQ(there.vocab_size, 100);
  EXPECT_EQ(there.served_model_name, "n");
  EXPECT_EQ(there.load.trace, "t");
  EXPECT_THAT(there.load.adapters, ElementsAre("a", "b"));
  EXPECT_EQ(there.load.adapter_draw, AdapterDraw::kSkewed);
  EXPECT_EQ(there.load.zipf_exponent, 2);
}

TEST(ParseBenchServe, ReadsTheFlagsOfAgents) {
  const auto load_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "serve", "--model-path", "m", "--agents", "3"});
    const Result<CommandLine> line = parse(arguments);
    return line.ok() ? std::get<BenchServeOptions>(line->command).load : LoadOptions();
  };
  const LoadOptions usual = load_of({});
  EXPECT_EQ(usual.agents.sessions, 3);
  EXPECT_EQ(usual.output_tokens, 444);
  EXPECT_FALSE(usual.agents.equal_results);
  const LoadOptions own =
      load_of({"--agent-turns", "5", "--agent-first-len", "100", "--agent-context", "900", "--agent-tool-seconds",
               "0.5", "--agent-results", "equal", "--output-len", "9", "--arrivals", "uniform"});
  EXPECT_EQ(own.agents.turns, 5);
  EXPECT_EQ(own.agents.first_tokens, 100);
  EXPECT_EQ(own.agents.context, 900);
  EXPECT_EQ(own.agents.tool_seconds, 0.5);
  EXPECT_TRUE(own.agents.equal_results);
  EXPECT_EQ(own.output_tokens, 9);
  EXPECT_EQ(own.arrivals, Arrivals::kUniform);
}

TEST(ParseBenchServe, WrongLinesNameTheFlag) {
  struct WrongLine {
    std::vector<std::string> arguments;
    const char* error;
  };
  const std::vector<WrongLine> wrong{
      WrongLine{{"bench", "serve"}, "--model-path is missing"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--url", "http://x"}, "--model-path does not go with --url"},
      WrongLine{{"bench", "serve", "--url", "http://x", "--graphs", "on"}, "--graphs does not go with --url"},
      WrongLine{{"bench", "serve", "--url", "http://x", "--api-key", "a\nb"},
                "--api-key: a line break is not accepted"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--api-key", "k"},
                "--api-key does not go with a server of this process"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--trace", "t", "--input-len", "3"},
                "--input-len does not go with --trace"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--trace", "t", "--output-len", "3"},
                "--output-len does not go with --trace"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--trace", "t"},
                "--trace does not go with --agents"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--num-prompts", "2"},
                "--num-prompts does not go with --agents"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--input-len", "2"},
                "--input-len does not go with --agents"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agent-turns", "2"},
                "--agent-turns has no effect without --agents"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--agent-turns", "1"}, "--agent-turns: "},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--agent-turns", "1025"}, "--agent-turns: "},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--agent-tool-seconds", "1e300"},
                "--agent-tool-seconds: 1e300"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--agents", "3", "--agent-tool-seconds", "-1"},
                "--agent-tool-seconds: -1"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--request-rate", "2,,4"}, "--request-rate: \"\""},
      WrongLine{{"bench", "serve", "--model-path", "m", "--request-rate", "0"}, "--request-rate: \"0\""},
      WrongLine{{"bench", "serve", "--model-path", "m", "--random-range-ratio", "2"}, "--random-range-ratio: 2"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--lora-zipf-alpha", "2"},
                "--lora-zipf-alpha has no effect without --lora-name and"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--lora-name", "a", "--lora-zipf-alpha", "-1"},
                "--lora-zipf-alpha: -1"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--graphs", "on,of"}, "--graphs: \"of\""},
      WrongLine{{"bench", "serve", "--model-path", "m", "--arrivals", "all"}, "--arrivals: \"all\""},
      WrongLine{{"bench", "serve", "--model-path", "m", "--repeat", "3"}, "--repeat does not go with bench serve"},
      WrongLine{{"bench", "serve", "--model-path", "m", "--num-tokens", "3"}, "--num-tokens does not go with"}};
  for (const WrongLine& line : wrong) EXPECT_THAT(parse(line.arguments).status().message(), HasSubstr(line.error));
}

}  // namespace
}  // namespace tessera::cli
