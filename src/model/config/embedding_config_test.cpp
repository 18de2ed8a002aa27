// Catches: vectors that are computed in another way than the model's files say; files that ask for an unsupported way
// of pooling but are accepted.
#include "tessera/model/config/embedding_config.h"

#include <cmath>
#include <filesystem>

#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;

constexpr const char* kModules = R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
  {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";

class EmbeddingConfigFiles : public ::testing::Test {
 protected:
  EmbeddingConfigFiles() { std::filesystem::create_directories(dir_.path() + "/1_Pooling"); }

  void write(const std::string& name, const std::string& text) const { dir_.write(name, text); }
  Result<std::optional<EmbeddingConfig>> read() const { return EmbeddingConfig::read(dir_.path(), 64); }
  // Reads a folder in which the config.json of the module Pooling is `pooling`.
  Result<std::optional<EmbeddingConfig>> read(const std::string& pooling) const {
    write("modules.json", kModules);
    write("1_Pooling/config.json", pooling);
    return read();
  }

  const test::ScratchDir dir_;
};

TEST_F(EmbeddingConfigFiles, TellHowVectorsAreMade) {
  EXPECT_FALSE(read()->has_value()) << "no files";
  for (const auto& [text, pooling] : {
           std::pair(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})", Pooling::kFirst),
           std::pair(R"({"pooling_mode_mean_tokens": true, "word_embedding_dimension": 64})", Pooling::kMean),
           std::pair(R"({"pooling_mode_lasttoken": true, "include_prompt": true})", Pooling::kLast),
           std::pair(R"({"pooling_mode": "mean"})", Pooling::kMean),
       }) {
    const Result<std::optional<EmbeddingConfig>> config = read(text);
    ASSERT_TRUE(config.ok()) << config.status().message();
    ASSERT_TRUE(config->has_value());
    EXPECT_EQ((*config)->pooling, pooling) << text;
    EXPECT_TRUE((*config)->normalise);
  }
  write("modules.json", R"([{"path": "1_Pooling", "type": "Pooling"}])");
  EXPECT_FALSE((*read())->normalise);
  write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"}])");
  EXPECT_FALSE(read()->has_value());
}

TEST_F(EmbeddingConfigFiles, WaysThatAreNotServedAreRefusedByName) {
  using enum StatusCode;
  for (const auto& [text, code, message] : {
           std::tuple(R"({"pooling_mode_max_tokens": true})", kUnimplemented, "\"pooling_mode_max_tokens\""),
           std::tuple(R"({"pooling_mode_weightedmean_tokens": true})", kUnimplemented, "pooling_mode_weightedmean"),
           std::tuple(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})", kUnimplemented,
                      "\"pooling_mode_lasttoken\""),
           std::tuple(R"({"pooling_mode": "max"})", kUnimplemented, "\"pooling_mode\" is \"max\""),
           std::tuple(R"({"pooling_mode_lasttoken": false})", kInvalidArgument, "\"pooling_mode\" is missing"),
           std::tuple(R"({"pooling_mode_lasttoken": 1})", kInvalidArgument, "pooling_mode_lasttoken"),
           std::tuple(R"({"pooling_mode_lasttoken": true, "word_embedding_dimension": 65})", kInvalidArgument, "64"),
           std::tuple(R"([])", kInvalidArgument, "1_Pooling/config.json"),
       }) {
    expect_error(read(text), code, {message});
  }
  std::filesystem::remove(dir_.path() + "/1_Pooling/config.json");
  expect_error(read(), kNotFound, {"the module Pooling of modules.json"});
  write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  for (const auto& [text, code, message] : {
           std::tuple(R"([{"path": "1_Pooling", "type": "a.Pooling"}, {"path": "2_Dense", "type": "a.Dense"}])",
                      kUnimplemented, "[1].type"),
           std::tuple(R"([{"path": "../x", "type": "a.Pooling"}])", kInvalidArgument, "[0].path"),
           std::tuple(R"({"a": 1})", kInvalidArgument, "a list of modules"),
           std::tuple(R"([5])", kInvalidArgument, "module 0"),
           std::tuple(R"([)", kInvalidArgument, "modules.json"),
       }) {
    write("modules.json", text);
    expect_error(read(), code, {message});
  }
}

TEST(Embedding, IsCutAndThenNormalised) {
  const std::vector<float> pooled = {3, 4, 12};
  EXPECT_THAT(EmbeddingConfig{}.finish(pooled, 2), ::testing::ElementsAre(0.6F, 0.8F));
  EXPECT_THAT(EmbeddingConfig{}.finish(pooled, 3), ::testing::ElementsAre(3.0F / 13, 4.0F / 13, 12.0F / 13));
  EXPECT_THAT(EmbeddingConfig{.normalise = false}.finish(pooled, 2), ::testing::ElementsAre(3, 4));
  EXPECT_THAT(EmbeddingConfig{}.finish(std::vector<float>{0, 0}, 2), ::testing::ElementsAre(0, 0));
}

}  // namespace
}  // namespace tessera
