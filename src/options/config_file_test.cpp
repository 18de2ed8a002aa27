// Catches: a value that has another effect in a file than on a command line; an invalid file from which some entries
// are accepted; an error that lacks the file, the line or the key; and input that crashes the reader.
#include "tessera/options/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ConfigFile : public ::testing::Test {
 protected:
  Result<std::vector<ConfigEntry>> read(const std::string& text) {
    return read_config_file(folder_.write("config", text));
  }
  std::string error(const std::string& text) {
    const auto entries = read(text);
    EXPECT_FALSE(entries.ok()) << text;
    EXPECT_EQ(entries.status().code(), StatusCode::kInvalidArgument) << text;
    return entries.status().message();
  }
  const test::ScratchDir folder_;
  const std::string path_ = folder_.write("config", "");
};

std::vector<std::string> texts(Json value, std::string_view type, bool repeatable = false) {
  Result<std::vector<std::string>> words = config_texts({"key", 1, std::move(value)}, type, repeatable);
  EXPECT_TRUE(words.ok()) << words.status().message();
  return words.ok() ? *words : std::vector<std::string>{};
}

TEST_F(ConfigFile, YamlAndJsonMeanTheSame) {
  const auto yaml = read(
      "# a comment\n"
      "model-path: models/demo\n"
      "\n"
      "page_size: 16\n"
      "--cuda-graph-bs: [1, 2, 4]\n"
      "disable-radix-cache: true\n"
      "cuda-graph-mode: off\n"
      "mem-fraction-static: 0.5   # half\n"
      "served-model-name: \"16\"\n"
      "stop:\n"
      "  - a b\n"
      "  - 'true'\n"
      "api-key:\n"
      "revision: ~\n");
  ASSERT_TRUE(yaml.ok()) << yaml.status().message();
  const auto json = read(
      "{\n"
      "\"model-path\": \"models/demo\",\n"
      "\n"
      "\"page_size\": 16,\n"
      "\"--cuda-graph-bs\": [1, 2, 4], \n"
      "\"disable-radix-cache\": true,\n"
      "\"cuda-graph-mode\": \"off\",\n"
      "\"mem-fraction-static\": 0.5,\n"
      "\"served-model-name\": \"16\", \"stop\": [\"a b\",\n"
      "\"true\"],\n"
      "\"api-key\": null,\n"
      "\"revision\": null}\n");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const std::vector<int> yaml_lines = {2, 4, 5, 6, 7, 8, 9, 10, 13, 14};
  const std::vector<int> json_lines = {2, 4, 5, 6, 7, 8, 9, 9, 11, 12};
  ASSERT_EQ(yaml->size(), yaml_lines.size());
  ASSERT_EQ(json->size(), json_lines.size());
  for (std::size_t i = 0; i < yaml_lines.size(); ++i) {
    EXPECT_EQ((*yaml)[i].key, (*json)[i].key);
    EXPECT_EQ((*yaml)[i].value, (*json)[i].value) << (*yaml)[i].key;
    EXPECT_EQ((*yaml)[i].line, yaml_lines[i]) << (*yaml)[i].key;
    EXPECT_EQ((*json)[i].line, json_lines[i]) << (*json)[i].key;
  }
}

TEST_F(ConfigFile, LinesOfKeysIgnoreLineBreaksInValues) {
  const auto json = read("{\"a\": \"{\\\"x\\\": [1,\\n2], \\\\\",\n \"b\": [1,\n \"c:\"],\n\"d\": 1}");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ((*json)[0].line, 1);
  EXPECT_EQ((*json)[1].line, 2);
  EXPECT_EQ((*json)[2].line, 4);
}

TEST_F(ConfigFile, SourcesAreSkipped) {
  const auto entries = read(R"({"page-size": 4, "sources": {"page-size": "file"}})");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ((*entries)[0].key, "page-size");
}

TEST_F(ConfigFile, ErrorsNameFileLineAndKey) {
  EXPECT_THAT(error("a: 1\nb:\n  c: 2\n"), AllOf(StartsWith(path_ + ":2: b holds a map"), HasSubstr("accepted")));
  EXPECT_THAT(error("{\"a\": 1,\n\"b\": {\"c\": 2}}"), StartsWith(path_ + ":2: b holds a map"));
  EXPECT_THAT(error("a: [1, {b: 2}]"), StartsWith(path_ + ":1: a holds a map in a list"));
  EXPECT_THAT(error("a: [[1]]"), StartsWith(path_ + ":1: a holds a list in a list"));
  EXPECT_THAT(error("a: []"), StartsWith(path_ + ":1: a holds an empty list"));
  EXPECT_THAT(error("a:\n-\n"), StartsWith(path_ + ":1: a holds an empty value in a list"));
  EXPECT_THAT(error("a: 1\nb: &x 2\n"), StartsWith(path_ + ":2: anchors are not accepted"));
  EXPECT_THAT(error("a: &x 2\nb: *x\n"), StartsWith(path_ + ":1: anchors are not accepted"));
  EXPECT_THAT(error("a: 1\nb: !!int 2\n"), StartsWith(path_ + ":2: the tag"));
  EXPECT_THAT(error("a: 1\n---\nb: 2\n"), StartsWith(path_ + ":"));
  EXPECT_THAT(error("a: 1\n b: 2\n"), StartsWith(path_ + ":2: "));
  for (const char* open : {"a: \"1\nb: 2\n", "a: '1\nb: 2", "a: [1\nb: 2\n", "a: {b: 1\n"})
    EXPECT_THAT(error(open), StartsWith(path_ + ":"));
  EXPECT_THAT(error("- a\n- b\n"), StartsWith(path_ + ":1: no map"));
  EXPECT_THAT(error("page-size 16\n"), StartsWith(path_ + ":1: no map"));
  EXPECT_THAT(error("? [a]\n: 1\n"), StartsWith(path_ + ":1: a key is no plain text"));
  EXPECT_THAT(error(": 1\n"), StartsWith(path_ + ":1: a key is empty"));
  EXPECT_THAT(error("{\"a\": 1,}"), HasSubstr(path_));
  EXPECT_THAT(error("{\"a\": 1, \"a\": 2}"), AllOf(HasSubstr(path_), HasSubstr("\"a\"")));
  for (const char* empty : {"", "\n \n", "# nothing\n", "---\n", "{}"})
    EXPECT_THAT(error(empty), AllOf(StartsWith(path_ + ": the file is empty"), HasSubstr("page-size: 16")));
  EXPECT_THAT(error("a: \xff\n"), HasSubstr("UTF-8"));
  EXPECT_THAT(error(std::string(2 << 20, '#')), HasSubstr("has more than 1048576 bytes"));
  EXPECT_THAT(error(std::string(100000, '[')), StartsWith(path_));
  EXPECT_THAT(error("a: " + std::string(100000, '{')), StartsWith(path_));
  EXPECT_THAT(read_config_file("/no/such/file").status().message(), HasSubstr("/no/such/file"));
  EXPECT_FALSE(read_config_file(::testing::TempDir()).ok());
}

// With any byte replaced, the reader must return entries or an error, and never crash.
TEST_F(ConfigFile, ChangedBytesNeverCrash) {
  const std::string yaml = "a: 1\nb: [x, 'y', \"z\\n\"]\nc: |\n  text\n---\nd: &e {f: *e}\n? g\n: !h 2\n";
  const std::string json = R"({"a": 1, "b": [true, "x\u00e4\\"], "c": null})";
  for (const std::string& good : {yaml, json}) {
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (const char c :
           {'\0', '\n', '\t', ' ', '"', '\'', '[', '}', ':', '-', '&', '*', '!', '|', '\\', '%', '\xc3'}) {
        std::string bad = good;
        bad[i] = c;
        const auto entries = read(bad);
        EXPECT_TRUE(entries.ok() || entries.status().message().find(path_) != std::string::npos) << bad;
      }
      (void)read(good.substr(0, i));
    }
  }
}

TEST(ConfigValues, BecomeTheWordsOfACommandLine) {
  EXPECT_THAT(texts(true, ""), ElementsAre("true"));
  EXPECT_THAT(texts(16, "N"), ElementsAre("16"));
  EXPECT_THAT(texts(0.5, "X"), ElementsAre("0.5"));
  EXPECT_THAT(texts(2, "X"), ElementsAre("2"));
  EXPECT_THAT(texts("a b", "DIR"), ElementsAre("a b"));
  EXPECT_THAT(texts("2G", "BYTES"), ElementsAre("2G"));
  EXPECT_THAT(texts(4096, "BYTES"), ElementsAre("4096"));
  EXPECT_THAT(texts("32k", "COUNT"), ElementsAre("32k"));
  EXPECT_THAT(texts(4096, "COUNT"), ElementsAre("4096"));
  EXPECT_THAT(texts(Json::Array{1, 2}, "LIST", true), ElementsAre("1", "2"));
  EXPECT_THAT(texts("1,2", "LIST", true), ElementsAre("1,2"));
  EXPECT_THAT(texts(Json::Array{1, "inf"}, "LIST"), ElementsAre("1,inf"));
  EXPECT_THAT(texts(Json::Array{"a", "b"}, "TEXT", true), ElementsAre("a", "b"));
  EXPECT_THAT(texts(Json(), "N"), IsEmpty());
}

TEST(ConfigValues, ValuesOfAnotherTypeAreRefused) {
  const struct {
    Json value;
    const char* type;
    bool repeatable;
    const char* message;
  } cases[] = {
      {"yes", "", false, "key: \"yes\" is not accepted; true or false is"},
      {1, "", false, "key: 1 is not accepted; true or false is"},
      {"16", "N", false, "key: \"16\" is not accepted; a whole number is"},
      {1.5, "N", false, "key: 1.5 is not accepted; a whole number is"},
      {true, "1", false, "key: true is not accepted; a whole number is"},
      {"x", "X", false, "key: \"x\" is not accepted; a number is"},
      {16, "DIR", false, "key: 16 is not accepted; a string is (in quotes)"},
      {true, "DIR", false, "key: true is not accepted; a string is"},
      {1.5, "BYTES", false, "key: 1.5 is not accepted; a whole number or a string (\"2GiB\") is"},
      {1.5, "COUNT", false, "key: 1.5 is not accepted; a whole number or a string (\"32k\") is"},
      {Json::Array{1, 2}, "N", false, "key: a list of integers is not accepted; a whole number is"},
      {Json::Array{"a"}, "DIR", false, "key: a list of strings is not accepted; a string is"},
      {Json::Array{true}, "LIST", true,
       "key: a list of booleans is not accepted; a number, a string, or a list of them is"},
      {Json::Array{1}, "TEXT", true,
       "key: a list of integers is not accepted; a string, or a list of them is (in quotes)"},
  };
  for (const auto& c : cases) {
    const auto words = config_texts({"key", 1, c.value}, c.type, c.repeatable);
    EXPECT_EQ(words.status().message(), c.message);
  }
}

TEST(ConfigValues, SurviveARoundTrip) {
  const struct {
    Json value;
    const char* type;
    bool repeatable;
  } cases[] = {{true, "", false},
               {16, "N", false},
               {0.5, "X", false},
               {"16", "DIR", false},
               {"2G", "BYTES", false},
               {1, "1", false},
               {Json::Array{1, 2}, "LIST", true},
               {Json::Array{"a", "7"}, "TEXT", true}};
  for (const auto& c : cases)
    EXPECT_EQ(config_value(texts(c.value, c.type, c.repeatable), c.type, c.repeatable), c.value) << c.value.dump();
}

}  // namespace
}  // namespace tessera
