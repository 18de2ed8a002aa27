// Catches: parts that lose or repeat a comma where the text is cut; wrong text for empty lists; and missing parts that
// are not noticed.
#include "tessera/server/fields/json_parts.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

JsonParts parts_of(std::size_t rows) {
  JsonParts parts;
  parts.once([](JsonWriter& json) { json.object().key("a").value(1).key("rows").array(); });
  parts.each(rows, [](JsonWriter& json, std::size_t i) { json.array().value(i).value("x").end_array(); });
  return parts.once([](JsonWriter& json) { json.end_array().end_object(); });
}

TEST(JsonParts, TextDoesNotDependOnTheCuts) {
  EXPECT_EQ(parts_of(3).all(), R"({"a":1,"rows":[[0,"x"],[1,"x"],[2,"x"]]})");
  EXPECT_EQ(parts_of(0).all(), R"({"a":1,"rows":[]})");
  const std::string whole = parts_of(30).all();
  for (std::size_t bytes = 1; bytes < whole.size(); bytes += 7) {
    JsonParts parts = parts_of(30);
    std::string joined;
    std::size_t pieces = 0;
    for (; !parts.done(); ++pieces) joined += parts.next(bytes);
    EXPECT_EQ(joined, whole) << bytes;
    EXPECT_GE(pieces, std::min<std::size_t>(whole.size() / (bytes + 8), 32)) << bytes;
  }
}

TEST(JsonParts, AnotherWriterTakesThem) {
  JsonWriter json;
  json.array().value(0);
  parts_of(1).write_all(json).end_array();
  EXPECT_EQ(json.take(), R"([0,{"a":1,"rows":[[0,"x"]]}])");
}

}  // namespace
}  // namespace tessera
