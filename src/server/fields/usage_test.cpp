// Token counts are written as prompt_tokens and completion_tokens for chats, and as input_tokens and output_tokens for
// responses and batches. Catches: counts that are written under one of these two sets of names but not read back, so
// that a batch loses them when the server starts again; and sums of several requests that leave out a count.
#include "tessera/server/fields/usage.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Usage many() {
  return {.prompt_tokens = 1000,
          .completion_tokens = 200,
          .cached_tokens = 80,
          .reasoning_tokens = 30,
          .drafts = {.steps = 4, .drafted = 9, .kept = 5}};
}

template <class Write>
Json written(Write write, const Usage& usage) {
  JsonWriter json;
  write(json, usage);
  return *Json::parse(json.text(), "usage");
}

TEST(Usage, IsReadBackUnderTheNamesOfEitherRoute) {
  Usage with_image = many();
  with_image.image_tokens = 64;
  const Json of_chat = written(write_usage, with_image);
  EXPECT_EQ(written(write_usage, read_usage(of_chat)), of_chat);
  const Json of_response = written(write_response_usage, many());
  EXPECT_EQ(written(write_response_usage, read_usage(of_response)), of_response);
  EXPECT_EQ(written(write_response_usage, read_usage(of_chat)), of_response) << "a batch of chats";
}

TEST(Usage, ThatIsMissingOrWrongCountsAsNothing) {
  const Json nothing = written(write_usage, {});
  EXPECT_EQ(written(write_usage, read_usage(Json())), nothing);
  EXPECT_EQ(
      written(write_usage, read_usage(*Json::parse(R"({"prompt_tokens": "5", "prompt_tokens_details": 3})", "x"))),
      nothing);
}

TEST(Usage, AddsEveryCount) {
  Usage sum = many();
  sum.add(many());
  EXPECT_EQ(written(write_response_usage, sum).dump(),
            R"({"input_tokens": 2000, "input_tokens_details": {"cached_tokens": 160, "cache_write_tokens": 0}, )"
            R"("output_tokens": 400, "output_tokens_details": {"reasoning_tokens": 60, )"
            R"("accepted_prediction_tokens": 10, "rejected_prediction_tokens": 8}, "total_tokens": 2400})");
  EXPECT_EQ(sum.drafts.steps, 8);
}

}  // namespace
}  // namespace tessera
