// Catches: sampling defaults that are read wrongly or lost; a missing file that is treated as an error.
#include "tessera/model/config/generation_config.h"

#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

Result<GenerationConfig> parse(const char* text) {
  const Result<Json> json = Json::parse(text, "test");
  EXPECT_TRUE(json.ok()) << text;
  return GenerationConfig::from_json(*json, "generation_config.json");
}

TEST(GenerationConfig, ReadsQwen3s) {
  const GenerationConfig config =
      *parse(R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
      "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})");
  EXPECT_EQ(config.bos_token_id, TokenId(151643));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(TokenId(151645), TokenId(151643)));
  EXPECT_EQ(config.pad_token_id, TokenId(151643));
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_FALSE(config.min_p || config.repetition_penalty || config.max_new_tokens);
}

TEST(GenerationConfig, EachFieldIsOptional) {
  const GenerationConfig config = *parse(R"({"temperature": null})");
  EXPECT_FALSE(config.bos_token_id || config.pad_token_id || config.do_sample || config.temperature || config.top_k ||
               config.top_p);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_THAT(parse(R"({"eos_token_id": 2})")->eos_token_ids, ElementsAre(TokenId(2)));
  EXPECT_EQ(parse(R"({"max_new_tokens": 64, "min_p": 0.05, "repetition_penalty": 1.1})")->max_new_tokens, 64);
}

TEST(GenerationConfig, FileIsOptional) {
  const test::ScratchDir dir;
  const Result<GenerationConfig> none = GenerationConfig::read(dir.path());
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_TRUE(none->eos_token_ids.empty());
  const std::string file = dir.write("generation_config.json", R"({"top_k": 5})");
  EXPECT_EQ(GenerationConfig::read(dir.path())->top_k, 5);
  EXPECT_EQ(GenerationConfig::read(file)->top_k, 5);
  expect_error(GenerationConfig::read(dir.path() + "/absent.json"), StatusCode::kNotFound, {"absent.json"});
  dir.write("generation_config.json", "{");
  expect_error(GenerationConfig::read(dir.path()), StatusCode::kInvalidArgument, {"generation_config.json"});
}

TEST(GenerationConfig, RefusesWithFileFieldAndValue) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {R"({"temperature": -0.1})", {"\"temperature\" is -0.1"}},
      {R"({"temperature": "hot"})", {"\"temperature\" is \"hot\""}},
      {R"({"top_k": 1.5})", {"\"top_k\" is 1.5", "integer"}},
      {R"({"top_k": -2})", {"\"top_k\" is -2"}},
      {R"({"top_p": 1.01})", {"\"top_p\" is 1.01", "[0, 1]"}},
      {R"({"min_p": 2})", {"\"min_p\" is 2"}},
      {R"({"do_sample": 1})", {"\"do_sample\" is 1"}},
      {R"({"repetition_penalty": 0})", {"\"repetition_penalty\" is 0"}},
      {R"({"max_new_tokens": 0})", {"\"max_new_tokens\" is 0"}},
      {R"({"eos_token_id": [-1]})", {"\"eos_token_id\" is [-1]"}},
      {R"({"bos_token_id": [1, 2]})", {"bos_token_id"}},
      {R"({"pad_token_id": true})", {"\"pad_token_id\" is true"}},
  };
  for (const auto& [text, parts] : cases) {
    SCOPED_TRACE(text);
    std::vector<std::string> all = parts;
    all.insert(all.end(), {"generation_config.json", "accepted: "});
    expect_error(parse(text), StatusCode::kInvalidArgument, all);
  }
}

}  // namespace
}  // namespace tessera
