// Catches: an invalid value that is accepted (such as a number with trailing text or an id list with a gap); and an
// error that does not name the flag, the value and the accepted values.
#include "tessera/options/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Values, ParsesIntegersInRange) {
  EXPECT_EQ(*parse_integer("--n", "12", {1, 20}), 12);
  EXPECT_EQ(*parse_integer("--n", "0", {0}), 0);
  for (const char* text : {"", "x", "1x", "1.5", "0", "21", "-3", "99999999999999999999", " 4"}) {
    const Result<std::int64_t> value = parse_integer("--n", text, {1, 20});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().message(),
              "--n: \"" + std::string(text) + "\" is not accepted; a whole number from 1 to 20 is");
  }
  EXPECT_THAT(parse_integer("--n", "0", {}).status().message(), HasSubstr("of 1 or more"));
}

TEST(Values, ParsesCountsWithSuffixes) {
  EXPECT_EQ(*parse_count("--n", "12", {1, 20}), 12);
  EXPECT_EQ(*parse_count("--n", "32k", {}), 32'000);
  EXPECT_EQ(*parse_count("--n", "32K", {}), 32'768);
  EXPECT_EQ(*parse_count("--n", "1m", {}), 1'000'000);
  EXPECT_EQ(*parse_count("--n", "1M", {}), 1 << 20);
  EXPECT_EQ(*parse_count("--n", "2g", {}), 2'000'000'000);
  EXPECT_EQ(*parse_count("--n", "2G", {}), std::int64_t{2} << 30);
  EXPECT_EQ(*parse_count("--n", "1t", {}), 1'000'000'000'000);
  EXPECT_EQ(*parse_count("--n", "1T", {}), std::int64_t{1} << 40);
  EXPECT_EQ(*parse_count("--n", "25.6k", {}), 25'600);
  EXPECT_EQ(*parse_count("--n", "1.001k", {}), 1001) << "in double it is a little less";
  EXPECT_EQ(*parse_count("--n", "9223372036854775807", {}), INT64_MAX);
  for (const char* text :
       {"",    "k",   "-1", "-1k", "0k",  "1.5",    "1.5K", "0.0005k", "1.0001k",      "1kk",
        "1kB", "1 k", "1x", ".5k", "5.k", "1.2.3k", "1e3",  "auto",    "99999999999t", "99999999999999999999"}) {
    const Result<std::int64_t> value = parse_count("--n", text, {});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().message(), "--n: \"" + std::string(text) +
                                            "\" is not accepted; a whole number of 1 or more is, also written as 32k "
                                            "(32000) or 32K (32768)");
  }
  EXPECT_THAT(parse_count("--n", "1k", {1, 999}).status().message(), HasSubstr("a whole number from 1 to 999 is"));
}

TEST(Values, ParsesFiniteNumbers) {
  EXPECT_EQ(*parse_number("--x", "0.5"), 0.5);
  EXPECT_EQ(*parse_number("--x", "-1"), -1);
  for (const char* text : {"", "a", "1,5", "nan", "inf", "1e999"})
    EXPECT_EQ(parse_number("--x", text).status().message(), "--x: \"" + std::string(text) + "\" is not a number");
}

TEST(Values, ParsesBytes) {
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_EQ(*parse_bytes("--b", "4096"), 4096);
  EXPECT_EQ(*parse_bytes("--b", "64M"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("--b", "64MiB"), 64 * kMiB);
  EXPECT_EQ(*parse_bytes("--b", "64MB"), 64'000'000);
  EXPECT_EQ(*parse_bytes("--b", "0.5GiB"), 512 * kMiB);
  EXPECT_EQ(*parse_bytes("--b", "2G"), 2048 * kMiB);
  EXPECT_EQ(*parse_bytes("--b", "1T"), std::int64_t{1} << 40);
  EXPECT_EQ(*parse_bytes("--b", "1K"), 1024);
  for (const char* text : {"", "0", "-1", "0.2", "M", "64m", "64 M", "64Mi", "64MB/s", "1.2.3", "nan", "inf", "1e3",
                           "99999999999T", "64iB", "0x10"}) {
    const Result<std::int64_t> bytes = parse_bytes("--b", text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.status().message(),
              "--b: \"" + std::string(text) + "\" is not accepted; bytes are, like 67108864, 64M, 0.5GiB, 2GB");
  }
}

TEST(Values, ParsesNames) {
  EXPECT_THAT(*parse_names("--n", "a"), ElementsAre("a"));
  EXPECT_THAT(*parse_names("--n", "a,b c"), ElementsAre("a", "b c"));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"})
    EXPECT_EQ(parse_names("--n", text).status().message(), "--n: \"" + std::string(text) + "\" has an empty name");
}

TEST(Values, ParsesTokenIds) {
  EXPECT_THAT(*parse_token_ids("--input-ids", "1,2,3"), ElementsAre(TokenId(1), TokenId(2), TokenId(3)));
  EXPECT_THAT(*parse_token_ids("--input-ids", "[ 7, 8 ]\n"), ElementsAre(TokenId(7), TokenId(8)));
  for (const char* text : {"", "[]", "1,,2", "1,2,", "a", "-1", "1 2", "2147483648", "1.0", "[1,2"}) {
    const Result<std::vector<TokenId>> ids = parse_token_ids("--input-ids", text);
    ASSERT_FALSE(ids.ok()) << text;
    EXPECT_THAT(ids.status().message(), HasSubstr("--input-ids: \""));
    EXPECT_THAT(ids.status().message(), HasSubstr("accepted is a list like \"1,2,3\""));
  }
}

TEST(Values, ParsesChoices) {
  constexpr std::string_view kChoices[] = {"one", "two"};
  EXPECT_EQ(*parse_choice("--c", "two", kChoices), 1U);
  EXPECT_EQ(parse_choice("--c", "three", kChoices).status().message(), "--c: \"three\" is not accepted; one, two is");
}

}  // namespace
}  // namespace tessera
