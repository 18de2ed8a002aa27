// Catches: DP attention that is requested but not used, and DP attention that runs on the wrong ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"
#include "tessera/engine/plan/rank_places.h"

namespace tessera::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DpAttentionFlags, RanksWithTheirOwnRequestsAreReplicas) {
  const auto serve = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"serve", "--model-path", "m", "--enable-dp-attention"});
    return parse_command_line(shared_built_ins(), words);
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--tp-size", "4", "--ep-size", "2"}, {"--tp", "4", "--ep", "2", "--dp-size", "4"}}) {
    const Result<CommandLine> line = serve(words);
    ASSERT_TRUE(line.ok()) << line.status().message();
    const auto& options = std::get<ServeOptions>(line->command);
    EXPECT_EQ(options.replicas, 4);
    EXPECT_TRUE(options.engine.dp_attention);
    EXPECT_EQ(options.engine.tp_size, 1);
    EXPECT_EQ(options.engine.ep_size, 2);
  }
  EXPECT_FALSE(std::get<ServeOptions>(serve({})->command).engine.dp_attention) << "one rank shares with none";
  EXPECT_THAT(serve({})->warnings, Contains(StartsWith("--enable-dp-attention has no effect with --tp-size 1")));
  EXPECT_THAT(serve({"--tp", "4", "--moe-a2a-backend", "deepep"})->warnings,
              ElementsAre(HasSubstr("every rank gets the rows of all, and the sums of its own")));
  EXPECT_THAT(serve({"--tp-size", "4", "--dp-size", "2"}).status().message(),
              StartsWith("--enable-dp-attention: --dp-size 2 with --tp-size 4 is not supported yet; accepted is 4"));
  EXPECT_THAT(serve({"--tp-size", "2", "--pp-size", "2"}).status().message(),
              StartsWith("--enable-dp-attention with --pp-size 2 is not supported yet"));
  const Result<CommandLine> nodes = serve({"--tp-size", "4", "--nnodes", "2", "--node-rank", "1"});
  ASSERT_TRUE(nodes.ok()) << nodes.status().message();
  EXPECT_EQ(std::get<ServeOptions>(nodes->command).replicas, 4);
  EXPECT_EQ(replicas_here(std::get<ServeOptions>(nodes->command).engine), 2);
  EXPECT_THAT(parse_command_line(shared_built_ins(), {"generate", "--model-path", "m", "--enable-dp-attention"})
                  .status()
                  .message(),
              StartsWith("--enable-dp-attention is not supported yet: it asks for data-parallel attention; serve has"));
}

}  // namespace
}  // namespace tessera::cli
