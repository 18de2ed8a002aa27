// Catches: a size outside its limits that is accepted; a default that replaces a size; and an error that does not name
// the field.
#include "tessera/base/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Reads "n" of `text` as a size of at most 100. `size` holds the default.
Status read_n(const char* text, std::int64_t& size) {
  const Json object = *Json::parse(text, "test");
  return Fields(object, "config.json").read_size("n", 100, size);
}

TEST(ReadSize, LimitsAreIncluded) {
  std::int64_t size = 0;
  EXPECT_TRUE(read_n(R"({"n": 1})", size).ok());
  EXPECT_EQ(size, 1);
  EXPECT_TRUE(read_n(R"({"n": 100})", size).ok());
  EXPECT_EQ(size, 100);
}

TEST(ReadSize, AbsentFieldKeepsTheDefault) {
  for (const char* text : {"{}", R"({"n": null})"}) {
    std::int64_t size = 7;
    EXPECT_TRUE(read_n(text, size).ok());
    EXPECT_EQ(size, 7) << text;
  }
}

TEST(ReadSize, AbsentFieldWithoutDefaultIsAnError) {
  std::int64_t size = 0;
  const Status status = read_n("{}", size);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("\"n\""));
}

TEST(ReadSize, SizesOutsideTheLimitsAreErrors) {
  for (const char* text : {R"({"n": 0})", R"({"n": -3})", R"({"n": 101})", R"({"n": 2.5})", R"({"n": "8"})"}) {
    std::int64_t size = 7;
    const Status status = read_n(text, size);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), HasSubstr("\"n\"")) << text;
    EXPECT_EQ(size, 7) << text;
  }
}

}  // namespace
}  // namespace tessera
