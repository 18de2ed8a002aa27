// Catches: options in JSON that mean something else than in a configuration file, or that are silently ignored.
#include "tessera/capi/open_options.h"

#include "tessera/capi/capi_test_util.h"

namespace tessera::capi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<OpenOptions> read(const std::string& text) { return read_open_options(shared_built_ins(), text); }

std::string refused(const std::string& text) {
  const Result<OpenOptions> options = read(text);
  EXPECT_FALSE(options.ok()) << text;
  return options.ok() ? "" : options.status().message();
}

TEST(OpenOptions, EqualThoseOfAConfigurationFile) {
  const Result<OpenOptions> options = read(R"({"model-path": "m", "page_size": 8, "context-length": "4K",
      "cuda-graph-bs": [1, 2, 4], "disable-radix-cache": true, "served-model-name": "mine", "log-level": ["warn"]})");
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->engine.model_path, "m");
  EXPECT_EQ(options->engine.page_size, 8);
  EXPECT_EQ(options->engine.context_length, 4096);
  EXPECT_EQ(options->engine.graphs.decode_batches, (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_TRUE(options->engine.disable_radix_cache);
  EXPECT_EQ(options->server.served_model_name, "mine");
  EXPECT_EQ(options->log_levels, std::vector<std::string>{"warn"});
}

TEST(OpenOptions, MayBeYaml) {
  const Result<OpenOptions> options = read("model-path: m\npage-size: 8\n");
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->engine.page_size, 8);
  EXPECT_EQ(options->server.served_model_name, "m");
}

TEST(OpenOptions, ErrorsNameTheFault) {
  for (const char* text : {"{}", "", "{\"page-size\": 8}"})
    EXPECT_THAT(refused(text), AllOf(HasSubstr("--model-path is missing"), HasSubstr("a model folder"))) << text;
  EXPECT_THAT(refused("{\"model-path\": \"m\",\n\"page-size\": \"8x\"}"), HasSubstr("options:2"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"page_sise\": 8}"), HasSubstr("did you mean --page-size"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"zzzzzzzz\": 8}"), HasSubstr("docs/embedding-api.md"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"device\": \"abacus\"}"), AllOf(HasSubstr("abacus"), HasSubstr("cpu")));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"print-config\": true}"), HasSubstr("tessera_explain"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"config\": \"f\"}"), HasSubstr("cannot name another"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"tool-call-parser\": \"none of them\"}"), HasSubstr("hermes"));
  EXPECT_THAT(refused("{\"model-path\": \"m\", \"chat-template\": \"{% if\"}"), HasSubstr("--chat-template"));
  EXPECT_THAT(refused("{"), HasSubstr("options"));
  EXPECT_THAT(refused("\xff"), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace tessera::capi
