// Catches: usage that is lost for one of the routes, counted twice, or lost when the server starts again.
#include "tessera/server/batches/batch_usage.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Json answer_with(const std::string& usage) {
  return *Json::parse(R"({"custom_id": "a", "response": {"status_code": 200, "body": {"usage": )" + usage + "}}}",
                      "line");
}

TEST(BatchUsage, SumsTheUsageOfAllRoutes) {
  BatchUsage usage;
  usage.add(answer_with(R"({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
                            "prompt_tokens_details": {"cached_tokens": 8},
                            "completion_tokens_details": {"reasoning_tokens": 3}})"));
  usage.add(answer_with(R"({"input_tokens": 100, "output_tokens": 40, "total_tokens": 140,
                            "input_tokens_details": {"cached_tokens": 80},
                            "output_tokens_details": {"reasoning_tokens": 30}})"));
  usage.add(answer_with(R"({"prompt_tokens": 1000, "total_tokens": 1000})"));  // an embedding
  usage.add(answer_with("null"));
  usage.add(Json::object({{"error", Json()}}));
  const Json json = usage.to_json();
  EXPECT_EQ(json.dump(),
            R"({"input_tokens": 1110, "input_tokens_details": {"cached_tokens": 88}, "output_tokens": 44, )"
            R"("output_tokens_details": {"reasoning_tokens": 33}, "total_tokens": 1154})");
  EXPECT_EQ(BatchUsage::read(json).to_json(), json);
  EXPECT_EQ(BatchUsage::read(Json()).to_json(), BatchUsage().to_json());
}

}  // namespace
}  // namespace tessera
