// Catches: invalid input that is accepted; numbers or text that a round trip changes; an endless file that is read
// until memory runs out.
#include "tessera/base/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tessera/base/write_file.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Json, RoundTripKeepsOrderTypesAndPrecision) {
  const std::string text =
      R"({"b": [1, -2, 0.1, 1e300, true, null], "a": {"é": "\u0001\"\\"}, "big": 9223372036854775807, "float32": 0.10000000149011612})";
  const Json value = *Json::parse(text, "test");
  EXPECT_EQ(*Json::parse(value.dump(), "again"), value);
  EXPECT_EQ(*Json::parse(value.dump(2), "again"), value);
  EXPECT_EQ(value.as_object()[0].first, "b");
  EXPECT_EQ(value.find("big")->as_int(), INT64_MAX);
  EXPECT_EQ(value.find("float32")->as_double(), 0.10000000149011612);
  EXPECT_EQ(value.find("none"), nullptr);
}

TEST(Json, RefusesTextThatIsNotStrictJson) {
  for (const char* bad :
       {"", "{", "[1,]", "{\"a\":1,}", "1 2", "nul", "\"\xff\"", "{\"a\":1,\"a\":2}", "01", "[1e999]"}) {
    const auto r = Json::parse(bad, "input.json");
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_THAT(r.status().message(), HasSubstr("input.json is not valid JSON")) << bad;
  }
  EXPECT_THAT(Json::parse("{\"a\":1,\"a\":2}", "x").status().message(), HasSubstr("key \"a\" appears twice"));
  EXPECT_THAT(Json::parse(std::string("1\0 2", 4), "x").status().message(), HasSubstr("byte 1 is zero"));
}

TEST(Json, DeepNestingIsAnErrorAndNotACrash) {
  EXPECT_TRUE(Json::parse(std::string(512, '[') + std::string(512, ']'), "x").ok());
  EXPECT_FALSE(Json::parse(std::string(513, '[') + std::string(513, ']'), "x").ok());
  EXPECT_THAT(Json::parse(std::string(1 << 20, '['), "x").status().message(), HasSubstr("nested deeper than 512"));
}

// Parses `text` with nlohmann's parser. For this, puts `text` into an array together with an integer of more than 64
// bits. simdjson refuses such an integer, so nlohmann's parser parses the array.
std::optional<Json> parse_slowly(const std::string& text) {
  Result<Json> array = Json::parse("[" + text + "\n, 18446744073709551616]", "x");
  if (!array.ok()) return std::nullopt;
  return std::move(array->as_array()[0]);
}

TEST(Json, BothParsersAcceptTheSameTexts) {
  std::string keys = "{";
  for (int i = 0; i < 40; ++i) keys += fmt::format("\"k{}\": {}, ", i, i);
  for (const std::string& text : std::vector<std::string>{"null",
                                                          "true",
                                                          "false",
                                                          "0",
                                                          "-0",
                                                          "-0.0",
                                                          "1",
                                                          "-1",
                                                          "9223372036854775807",
                                                          "-9223372036854775808",
                                                          "9223372036854775808",
                                                          "18446744073709551615",
                                                          "-9223372036854775809",
                                                          "0.1",
                                                          "1e2",
                                                          "1E+2",
                                                          "1e-400",
                                                          "1e400",
                                                          "4.9406564584124654e-324",
                                                          "1.7976931348623157e308",
                                                          "123456789012345678901234567890",
                                                          "01",
                                                          "+1",
                                                          "1.",
                                                          ".5",
                                                          "\"\"",
                                                          "\"a\\u0041\\n\\/\"",
                                                          "\"\\u0000\"",
                                                          "\"\\ud83d\\ude00\"",
                                                          "\"\\ud83d\"",
                                                          "\"\\ude00\"",
                                                          "\"\\ud83d\\u0041\"",
                                                          "\"\\x\"",
                                                          "\"\xc3\xa9\"",
                                                          "\"\xc3\"",
                                                          "\"\xed\xa0\x80\"",
                                                          "\"\t\"",
                                                          "[]",
                                                          "{}",
                                                          "[[], {}, [1]]",
                                                          "[1 2]",
                                                          "[1,]",
                                                          "{\"a\": {\"a\": 1}}",
                                                          "{\"a\": 1, \"\\u0061\": 2}",
                                                          "{\"a\" 1}",
                                                          "{1: 2}",
                                                          "nan",
                                                          "Infinity",
                                                          "'a'",
                                                          "/**/1",
                                                          " \n\t\r1 ",
                                                          "\f1",
                                                          keys + "\"last\": 1}",
                                                          keys + "\"k7\": 1}"}) {
    const Result<Json> fast = Json::parse(text, "x");
    const std::optional<Json> slow = parse_slowly(text);
    ASSERT_EQ(fast.ok(), slow.has_value()) << text;
    if (fast.ok()) {
      EXPECT_EQ(*fast, *slow) << text;
      EXPECT_EQ(fast->dump(), slow->dump()) << text;
    }
  }
}

TEST(ReadTextFile, StopsAtTheSizeLimit) {
  const std::string path = ::testing::TempDir() + "/read_text_file_test";
  const std::string text(100'000, 'x');
  ASSERT_TRUE(write_file(path, text).ok());
  EXPECT_EQ(*read_text_file(path, text.size()), text);
  const Status longer = read_text_file(path, text.size() - 1).status();
  EXPECT_THAT(longer.message(), AllOf(HasSubstr(path), HasSubstr("more than 99999 bytes")));
  ASSERT_TRUE(write_file(path, "").ok());
  EXPECT_EQ(*read_text_file(path), "");
  EXPECT_EQ(read_text_file("/dev/zero", 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_text_file(::testing::TempDir()).status().code(), StatusCode::kDataLoss);
}

TEST(Json, NamesAPointerOfGitLfs) {
  const std::string path = ::testing::TempDir() + "/pointer.json";
  ASSERT_TRUE(write_file(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n").ok());
  EXPECT_THAT(Json::read_file(path).status().message(), HasSubstr(path + " is a pointer of Git LFS"));
}

TEST(Json, NamesAMissingFile) {
  EXPECT_THAT(Json::read_file("/nonexistent/a.json").status().message(), HasSubstr("/nonexistent/a.json"));
}

}  // namespace
}  // namespace tessera
