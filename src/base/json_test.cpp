// Catches: invalid input that a lenient parser would accept, numbers or text changed by a round trip, and an endless
// file that is read until memory runs out.
#include "tessera/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
}

TEST(Json, DeepNestingIsAnErrorAndNotACrash) {
  EXPECT_TRUE(Json::parse(std::string(500, '[') + std::string(500, ']'), "x").ok());
  EXPECT_THAT(Json::parse(std::string(1 << 20, '['), "x").status().message(), HasSubstr("nested deeper than 512"));
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
