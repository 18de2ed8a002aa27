// Catches: a flag of make-checkpoint that does not set its option; a wrong flag that is accepted, or that the error
// does not name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cli/parse.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

Result<CommandLine> parse_make(std::vector<std::string> words) {
  words.insert(words.begin(), "make-checkpoint");
  return parse_command_line(shared_built_ins(), words);
}

TEST(ParseMakeCheckpoint, FlagsSetTheirOptions) {
  const MakeCheckpointOptions plain = std::get<MakeCheckpointOptions>(parse_make({"c/config.json", "d"})->command);
  EXPECT_NE(plain.registry, nullptr);
  EXPECT_EQ(plain.config, "c/config.json");
  EXPECT_EQ(plain.folder, "d");
  EXPECT_EQ(plain.dtype, std::nullopt);
  EXPECT_EQ(plain.checkpoint.seed, 0U);
  EXPECT_EQ(plain.checkpoint.max_shard_bytes, 5'000'000'000);
  EXPECT_FALSE(plain.overwrite);
  const Result<CommandLine> line = parse_make({"c", "d", "--seed", "7", "--dtype", "bfloat16", "--max-shard-size",
                                               "2GiB", "--tokenizer-path", "t", "--overwrite", "--log-level", "info"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  const MakeCheckpointOptions& given = std::get<MakeCheckpointOptions>(line->command);
  EXPECT_EQ(given.dtype, StoredDtype::kBF16);
  EXPECT_EQ(given.checkpoint.seed, 7U);
  EXPECT_EQ(given.checkpoint.max_shard_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(given.tokenizer_path, "t");
  EXPECT_TRUE(given.overwrite);
}

TEST(ParseMakeCheckpoint, WrongLinesAreRefusedNamingTheFlag) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const Result<CommandLine> line = parse_make(words);
    return line.ok() ? std::string("accepted") : line.status().message();
  };
  EXPECT_THAT(refusal({}), HasSubstr("make-checkpoint needs a config.json"));
  EXPECT_THAT(refusal({"c"}), HasSubstr("make-checkpoint needs a config.json"));
  EXPECT_THAT(refusal({"c", "d", "e"}), HasSubstr("unexpected argument \"e\""));
  EXPECT_THAT(refusal({"c", "d", "--seed", "-1"}), HasSubstr("--seed: \"-1\" is not accepted"));
  EXPECT_THAT(refusal({"c", "d", "--dtype", "int8"}), HasSubstr("--dtype: \"int8\" is not accepted; auto, float32"));
  EXPECT_THAT(refusal({"c", "d", "--max-shard-size", "much"}), HasSubstr("--max-shard-size: \"much\""));
  EXPECT_THAT(refusal({"c", "d", "--tokenizer-path", ""}), HasSubstr("--tokenizer-path: the value is empty"));
  EXPECT_THAT(refusal({"c", "d", "--model-path", "m"}), HasSubstr("unknown flag --model-path of make-checkpoint"));
}

}  // namespace
}  // namespace tessera::cli
