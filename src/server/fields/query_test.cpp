// Catches: parameters that are found under another name, or whose escapes are read wrongly or past the end.
#include "tessera/server/fields/query.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Query, ValuesAreFoundByNameAndDecoded) {
  constexpr std::string_view kQuery = "include=core%2cmemory&format=json&empty=&bare&include=other&a%62=x+y";
  EXPECT_EQ(query_value(kQuery, "include"), "core,memory");
  EXPECT_EQ(query_value(kQuery, "format"), "json");
  EXPECT_EQ(query_value(kQuery, "empty"), "");
  EXPECT_EQ(query_value(kQuery, "bare"), "");
  EXPECT_EQ(query_value(kQuery, "ab"), "x y");
  EXPECT_EQ(query_value(kQuery, "form"), std::nullopt);
  EXPECT_EQ(query_value("", "format"), std::nullopt);
}

TEST(Query, AllValuesOfAListAreFound) {
  EXPECT_EQ(query_values("include=a&x=y&include%5B%5D=b&include[]=", "include"),
            (std::vector<std::string>{"a", "b", ""}));
  EXPECT_TRUE(query_values("included=a", "include").empty());
}

TEST(Query, WrongEscapesStayAsTheyAre) {
  EXPECT_EQ(query_value("a=%", "a"), "%");
  EXPECT_EQ(query_value("a=%4", "a"), "%4");
  EXPECT_EQ(query_value("a=%41", "a"), "A");
  EXPECT_EQ(query_value("a=%zz%4g", "a"), "%zz%4g");
  EXPECT_EQ(query_value("&&a==b&", "a"), "=b");
}

}  // namespace
}  // namespace tessera
