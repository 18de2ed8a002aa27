// Catches: members of OpenAI's response object that clients expect and an answer lacks; and fields of a request that
// its answer repeats wrongly.
#include "tessera/server/responses/response_head.h"

#include <gtest/gtest.h>

#include "tessera/server/openai/answers_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::parsed;

// Returns the head of the answer to a request with these fields, closed.
Json head_of(const char* request, const ResponseHead& head = {}) {
  const Json json = parsed(request);
  return parsed(make_response_head(ApiFields(json), head) + "}");
}

TEST(ResponseHead, AFieldLeftOutHasItsDefault) {
  const Json head = head_of("{}");
  EXPECT_EQ(at(head, "tools").dump(), "[]");
  EXPECT_EQ(at(head, "text").dump(), R"({"format": {"type": "text"}})");
  EXPECT_EQ(at(head, "reasoning").dump(), R"({"effort": null, "summary": null})");
  EXPECT_EQ(at(head, "presence_penalty").as_double(), 0);
  EXPECT_EQ(at(head, "frequency_penalty").as_double(), 0);
}

TEST(ResponseHead, PenaltiesAreThoseOfTheSampling) {
  ResponseHead given;
  given.presence_penalty = 1.5;
  given.frequency_penalty = -0.5;
  const Json head = head_of("{}", given);
  EXPECT_EQ(at(head, "presence_penalty"), Json(1.5));
  EXPECT_EQ(at(head, "frequency_penalty"), Json(-0.5));
}

TEST(ResponseHead, AFunctionHasAllItsMembers) {
  const Json head = head_of(R"({"tools": [
      {"type": "function", "name": "f"},
      {"type": "function", "name": "g", "description": "d", "parameters": {}, "strict": true},
      {"type": "custom", "name": "c"},
      {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h"}]}]})");
  EXPECT_EQ(at(head, "tools"), parsed(R"([
      {"type": "function", "name": "f", "description": null, "parameters": null, "strict": null},
      {"type": "function", "name": "g", "description": "d", "parameters": {}, "strict": true},
      {"type": "custom", "name": "c"},
      {"type": "namespace", "name": "n",
       "tools": [{"type": "function", "name": "h", "description": null, "parameters": null, "strict": null}]}])"));
}

TEST(ResponseHead, AnObjectWithoutAMemberGetsNull) {
  const Json head = head_of(R"({"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}})");
  EXPECT_EQ(at(head, "reasoning").dump(), R"({"effort": "low", "summary": null})");
  EXPECT_EQ(at(head, "text").dump(), R"({"verbosity": "low", "format": {"type": "text"}})");
}

TEST(ResponseHead, ASchemaHasAllItsMembers) {
  const Json head = head_of(R"({"text": {"format": {"type": "json_schema", "name": "s", "schema": {}}}})");
  EXPECT_EQ(at(head, "text.format").dump(),
            R"({"type": "json_schema", "name": "s", "schema": {}, "description": null, "strict": null})");
}

}  // namespace
}  // namespace tessera
