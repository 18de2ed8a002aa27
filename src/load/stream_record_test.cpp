// Catches: events that are read wrongly because they arrive in pieces; tokens that come together but count as one; and
// a stream that ends early but counts as a success.
#include "tessera/load/stream_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string chunk(std::string_view text, std::string_view usage = "null") {
  return "data: {\"choices\":[{\"text\":\"" + std::string(text) + "\"}],\"usage\":" + std::string(usage) + "}\n\n";
}
std::string usage(int prompt, int output) {
  return "{\"prompt_tokens\":" + std::to_string(prompt) + ",\"completion_tokens\":" + std::to_string(output) + "}";
}

TEST(StreamRecord, TokensThatComeTogetherShareTheirGap) {
  RequestRecord record;
  StreamRecord stream(record, /*keep_ids=*/false);
  stream.push(chunk("a", usage(9, 1)), 1);
  stream.push(chunk("bc", usage(9, 3)), 2);
  stream.push(chunk("d", usage(9, 4)), 2.25);
  stream.push("data: {\"choices\":[],\"usage\":" + usage(9, 5) + "}\n\ndata: [DONE]\n\n", 7);
  stream.end();
  EXPECT_EQ(record.failure, "");
  EXPECT_EQ(record.input_tokens, 9);
  EXPECT_EQ(record.output_tokens, 5);
  EXPECT_EQ(record.first_token_s, 1);
  EXPECT_EQ(record.end_s, 2.25);
  EXPECT_THAT(record.gaps_s, ElementsAre(0.5F, 0.5F, 0.25F));
}

TEST(StreamRecord, WithoutUsageEachTextCountsAsAToken) {
  RequestRecord record;
  StreamRecord stream(record, /*keep_ids=*/false);
  for (const char* text : {"", "a", "b", ""}) stream.push(chunk(text), 1);
  stream.push("data: [DONE]\n\n", 1);
  stream.end();
  EXPECT_EQ(record.failure, "");
  EXPECT_EQ(record.output_tokens, 2);
  EXPECT_THAT(record.gaps_s, ElementsAre(0.0F));
}

TEST(StreamRecord, KeepsIdsAndCachedTokensIfAskedTo) {
  const std::string bytes =
      "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[4,7]}],\"usage\":" + usage(9, 2) +
      "}\n\ndata: {\"choices\":[{\"text\":\"\",\"token_ids\":[1]}],\"usage\":" + usage(9, 3) +
      "}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":8}}}"
      "\n\ndata: [DONE]\n\n";
  for (const bool keep : {false, true}) {
    RequestRecord record;
    StreamRecord stream(record, keep);
    stream.push(bytes, 1);
    stream.end();
    EXPECT_EQ(record.failure, "");
    EXPECT_EQ(record.cached_tokens, 8);
    EXPECT_EQ(record.output_ids, keep ? std::vector<std::int64_t>({4, 7, 1}) : std::vector<std::int64_t>());
  }
}

TEST(StreamRecord, EventsMayBeCutAnywhere) {
  std::string bytes = ": comment\r\n" + chunk("a", usage(2, 1)) + "event: x\r\n" + chunk("b", usage(2, 2));
  bytes += "data:[DONE]\r\n\r\n";
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    RequestRecord record;
    StreamRecord stream(record, /*keep_ids=*/false);
    stream.push(std::string_view(bytes).substr(0, cut), 1);
    stream.push(std::string_view(bytes).substr(cut), 2);
    stream.end();
    EXPECT_EQ(record.failure, "") << cut;
    EXPECT_EQ(record.output_tokens, 2) << cut;
  }
}

TEST(StreamRecord, RecordsWhyARequestFailed) {
  const auto failure = [](const std::string& bytes) {
    RequestRecord record;
    StreamRecord stream(record, /*keep_ids=*/false);
    stream.push(bytes, 1);
    stream.end();
    return record.failure;
  };
  EXPECT_THAT(failure(chunk("a")), HasSubstr("before its [DONE]"));
  EXPECT_THAT(failure("data: [DONE]\n\n"), HasSubstr("no tokens"));
  EXPECT_THAT(failure("data: {]\n\n"), HasSubstr("no JSON"));
  EXPECT_EQ(failure(chunk("a") + "data: {\"error\":{\"message\":\"engine\\nlost\"}}\n\ndata: [DONE]\n\n"),
            "engine lost");
}

TEST(StreamRecord, FindsTheMessageOfAnError) {
  EXPECT_EQ(error_message(R"({"error":{"message":"too long"}})"), "too long");
  EXPECT_EQ(error_message(R"({"error":"gone"})"), "gone");
  EXPECT_EQ(error_message(R"({"object":"error","message":"bad"})"), "bad");
  EXPECT_EQ(error_message("<html>\n502"), "<html> 502");
}

}  // namespace
}  // namespace tessera
