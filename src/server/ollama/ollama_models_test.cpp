// Catches: models that Ollama's clients do not list; capabilities that a model does not have; and sizes that are wrong.
#include "tessera/server/ollama/ollama_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

ServedModel qwen() {
  ServedModel model = test::test_model();
  model.aliases = {"alias"};
  model.architecture = "Qwen3ForCausalLM";
  model.parameters = 8'190'000'000;
  model.weight_bytes = 16'380'000'000;
  model.weight_type = "bfloat16";
  return model;
}

Json shown(const ServedModel& model, const char* body = R"({"model": "demo"})") {
  ApiResult<std::string> text = ollama_show_body(model, body);
  EXPECT_TRUE(text.ok());
  return *Json::parse(*text, "answer");
}

TEST(OllamaModels, EveryNameIsListedWithItsDetails) {
  const Json tags = *Json::parse(ollama_tags_body(qwen()), "answer");
  ASSERT_EQ(tags.find("models")->as_array().size(), 2u);
  const Json& first = tags.find("models")->as_array()[0];
  EXPECT_EQ(first.find("model")->as_string(), "demo");
  EXPECT_EQ(first.find("size")->as_int(), 16'380'000'000);
  EXPECT_EQ(first.find("modified_at")->as_string(), "1970-01-01T00:00:01Z");
  EXPECT_EQ(first.find("details")->dump(),
            R"({"parent_model": "", "format": "safetensors", "family": "qwen3", "families": ["qwen3"], )"
            R"("parameter_size": "8.2B", "quantization_level": "BF16"})");
  const Json loaded = *Json::parse(ollama_ps_body(qwen()), "answer");
  EXPECT_EQ(loaded.find("models")->as_array()[1].find("name")->as_string(), "alias");
  EXPECT_EQ(loaded.find("models")->as_array()[1].find("context_length")->as_int(), 256);
}

TEST(OllamaModels, CapabilitiesAreThoseOfTheModel) {
  ServedModel model = qwen();
  EXPECT_EQ(shown(model).find("capabilities")->dump(), R"(["completion"])");
  model.tool_call_parser = "hermes";
  model.reasoning_parser = "qwen3";
  model.images.emplace();
  EXPECT_EQ(shown(model).find("capabilities")->dump(), R"(["completion", "tools", "thinking", "vision"])");
  model.embedding = EmbeddingConfig();
  model.images.reset();
  EXPECT_EQ(shown(model).find("capabilities")->dump(), R"(["embedding"])");
}

TEST(OllamaModels, ShowHasSizesAndDefaults) {
  ServedModel model = qwen();
  model.generation.temperature = 0.6;
  model.generation.top_k = 20;
  const Json show = shown(model, R"({"name": "demo:latest", "verbose": false})");
  EXPECT_EQ(show.find("model_info")->find("general.architecture")->as_string(), "qwen3");
  EXPECT_EQ(show.find("model_info")->find("qwen3.context_length")->as_int(), 256);
  EXPECT_EQ(show.find("model_info")->find("general.parameter_count")->as_int(), 8'190'000'000);
  EXPECT_THAT(show.find("parameters")->as_string(), ::testing::ContainsRegex("temperature +0.6\ntop_k +20\n"));
  EXPECT_FALSE(ollama_show_body(model, R"({"model": "other"})").ok());
  EXPECT_FALSE(ollama_show_body(model, R"({"model": "demo", "verbosity": 1})").ok());
}

TEST(OllamaModels, BrowsersGetThePage) {
  const auto asks = [](std::string accept) {
    HttpRequest request{.method = "GET", .path = "/", .query = "", .headers = {}, .body = ""};
    if (!accept.empty()) request.headers.emplace_back("Accept", std::move(accept));
    return asks_for_page(request);
  };
  EXPECT_TRUE(asks("text/html,application/xhtml+xml,*/*;q=0.8"));
  EXPECT_FALSE(asks("*/*"));
  EXPECT_FALSE(asks(""));
}

}  // namespace
}  // namespace tessera
