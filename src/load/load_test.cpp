// Catches: traces whose times, blocks or line endings are read wrongly; a wrong rate; prompts that share a beginning by
// accident, or that differ although the trace says that they are equal; and ids that the model does not have.
#include "tessera/load/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "tessera/load/trace.h"
#include "tessera/text/test_data.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Trace : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string with(const std::string& content) const {
    std::ofstream(path_) << content;
    return path_;
  }
  std::string error(const std::string& content) const {
    const Result<std::vector<LoadRequest>> requests = read_trace(with(content), 10);
    return requests.ok() ? "" : requests.status().message();
  }

  const std::string path_ =
      ::testing::TempDir() + "/bench_load_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Trace, ReadsAzuresFormat) {
  const Result<std::vector<LoadRequest>> requests =
      read_trace(with("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.7500000,4808,10\r\n"
                      "2023-11-17 00:00:00.2500000,3180,0\n2024-05-10 00:00:01.5+00:00,1,2"),
                 10);
  ASSERT_TRUE(requests.ok()) << requests.status().message();
  ASSERT_EQ(requests->size(), 3U);
  EXPECT_NEAR((*requests)[1].arrival_s - (*requests)[0].arrival_s, 0.5, 1e-6);
  EXPECT_EQ((*requests)[0].input_tokens, 4808);
  EXPECT_EQ((*requests)[0].output_tokens, 10);
  EXPECT_EQ((*requests)[1].output_tokens, 1);
}

TEST_F(Trace, ReadsMooncakesFormat) {
  const Result<std::vector<LoadRequest>> requests =
      read_trace(with("{\"timestamp\": 500, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [0, 4]}\n\n"
                      "{\"timestamp\": 2000, \"input_length\": 3, \"output_length\": 1}\n"),
                 10);
  ASSERT_TRUE(requests.ok()) << requests.status().message();
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_DOUBLE_EQ((*requests)[0].arrival_s, 0.5);
  EXPECT_THAT((*requests)[0].blocks, ElementsAre(0, 4));
  EXPECT_EQ(read_trace(path_, 1)->size(), 1U);
}

TEST_F(Trace, NamesWrongLines) {
  EXPECT_THAT(error(""), HasSubstr("no lines"));
  EXPECT_THAT(error("time,tokens\n"), HasSubstr("accepted are"));
  EXPECT_THAT(error("TIMESTAMP,ContextTokens,GeneratedTokens\n"), HasSubstr("no requests"));
  const std::string heading = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,1,2\n";
  for (const char* line : {"2023-11-16 18:17:03.9,1", "2023-11-16,1,2", "2023-13-16 18:17:03,1,2", "x",
                           "2023-11-16 18:17:03.9,-1,2", "2023-11-16 18:17:03.9,1,2,3"}) {
    EXPECT_THAT(error(heading + line), HasSubstr(":3: ")) << line;
  }
  const std::string good = "{\"timestamp\": 5, \"input_length\": 6, \"output_length\": 7}\n";
  for (const char* line : {"{\"timestamp\": 5}", "{", "[]",
                           "{\"timestamp\": 5, \"input_length\": 6, \"output_length\": 7, \"hash_ids\": [-1]}",
                           "{\"timestamp\": 5, \"input_length\": -6, \"output_length\": 7}"}) {
    EXPECT_THAT(error(good + line), HasSubstr(":2: ")) << line;
  }
  EXPECT_THAT(read_trace("/no/such/trace", 1).status().message(), HasSubstr("/no/such/trace"));
  EXPECT_THAT(read_trace("/dev/zero", 1).status().message(), HasSubstr("/dev/zero begins with"));
  EXPECT_THAT(read_trace("/dev", 1).status().message(), HasSubstr("/dev cannot be read: Is a directory"));
}

TEST(Load, PoissonArrivalsHaveTheirRateAndSpread) {
  const Load load = *make_load({.num_prompts = 20000, .seed = 3, .input_tokens = 5, .output_tokens = 2});
  const std::vector<double> times = *arrivals_at(load, 4);
  EXPECT_NEAR(times.back(), 5000, 150);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  double squares = 0;
  for (std::size_t i = 1; i < times.size(); ++i) squares += (times[i] - times[i - 1]) * (times[i] - times[i - 1]);
  EXPECT_NEAR(squares / 19999, 2 * 0.25 * 0.25, 0.01);  // an exponential distribution's mean square is 2 · mean²
  const std::vector<double> at_once = *arrivals_at(load, INFINITY);
  EXPECT_THAT(at_once, ::testing::Each(0));
  EXPECT_THAT(*arrivals_at(*make_load({.num_prompts = 3, .arrivals = Arrivals::kUniform}), 2), ElementsAre(0, 0.5, 1));
}

TEST(Load, LengthsKeepTheirRange) {
  const Load exact = *make_load({.num_prompts = 50, .input_tokens = 9, .output_tokens = 4});
  const Load ranged = *make_load({.num_prompts = 500, .input_tokens = 9, .output_tokens = 4, .range_ratio = 0.5});
  for (const LoadRequest& request : exact.requests) EXPECT_EQ(request.input_tokens * 10 + request.output_tokens, 94);
  const auto [least, most] =
      std::minmax_element(ranged.requests.begin(), ranged.requests.end(),
                          [](const LoadRequest& a, const LoadRequest& b) { return a.input_tokens < b.input_tokens; });
  EXPECT_EQ(least->input_tokens, 4);
  EXPECT_EQ(most->input_tokens, 9);
}

TEST(Load, ATraceIsScaledAsAWhole) {
  const Load load{.requests = {{.arrival_s = 0}, {.arrival_s = 1}, {.arrival_s = 4}}, .recorded = true};
  EXPECT_THAT(*arrivals_at(load, 1), ElementsAre(0, 0.5, 2));
  const Load moment{.requests = {{.arrival_s = 0}, {.arrival_s = 0}}, .recorded = true};
  EXPECT_THAT(arrivals_at(moment, 1).status().message(), HasSubstr("at one moment"));
  EXPECT_TRUE(arrivals_at(moment, INFINITY).ok());
}

TEST(Load, ClipsRequestsToTheContext) {
  Load load{.requests = {{.input_tokens = 60, .output_tokens = 40},
                         {.input_tokens = 61, .output_tokens = 40},
                         {.input_tokens = 1, .output_tokens = 500}}};
  EXPECT_EQ(clip_to_context(load, 100), 2);
  EXPECT_EQ(load.requests[0].input_tokens, 60);
  EXPECT_EQ(load.requests[1].input_tokens, 60);
  EXPECT_EQ(load.requests[2].output_tokens, 99);
  EXPECT_EQ(load.requests[2].input_tokens, 1);
}

TEST(Load, ClippedAgentsKnowNoMoreThanTheirPrompts) {
  Load load =
      *make_load({.agents = {.sessions = 2, .turns = 6, .first_tokens = 100, .context = 600}, .output_tokens = 5});
  EXPECT_GT(clip_to_context(load, 300), 0);
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    EXPECT_LE(load.requests[i].known_tokens, load.requests[i].input_tokens);
    EXPECT_EQ(std::ssize(prompt_ids(load.requests[i], i, {.vocab_size = 9})), load.requests[i].input_tokens);
  }
}

TEST(Load, ASessionKeepsItsAdapter) {
  for (const AdapterDraw draw : {AdapterDraw::kUniform, AdapterDraw::kInTurn, AdapterDraw::kSkewed}) {
    const Load load = *make_load({.adapters = {"a", "b", "c"},
                                  .adapter_draw = draw,
                                  .agents = {.sessions = 30, .turns = 3, .first_tokens = 100, .context = 600},
                                  .output_tokens = 5});
    std::map<std::string, int> sessions;
    for (const LoadRequest& request : load.requests) {
      if (request.after) {
        EXPECT_EQ(request.adapter, load.requests[*request.after].adapter);
      } else {
        EXPECT_EQ(request.known_tokens, sessions[request.adapter]++ == 0 ? 0 : 75);
      }
    }
    EXPECT_EQ(sessions.size(), 3U);
    if (draw == AdapterDraw::kInTurn) {
      EXPECT_EQ(sessions["c"], 10);
    }
  }
}

TEST(Load, AdaptersAreDrawnAsAsked) {
  LoadOptions options{.num_prompts = 4000, .adapters = {"a", "b", "c"}};
  const auto counts_of = [](const Load& load) {
    std::map<std::string, double> counts;
    for (const LoadRequest& request : load.requests) ++counts[request.adapter];
    return counts;
  };
  for (const auto& [name, count] : counts_of(*make_load(options))) EXPECT_NEAR(count, 1333, 150) << name;

  options.adapter_draw = AdapterDraw::kSkewed;
  options.zipf_exponent = 1;
  const Load skewed = *make_load(options);
  std::map<std::string, double> counts = counts_of(skewed);
  EXPECT_NEAR(counts["a"], 4000 * 6 / 11, 150);
  EXPECT_NEAR(counts["b"], 4000 * 3 / 11, 150);
  EXPECT_NEAR(counts["c"], 4000 * 2 / 11, 150);

  options.adapter_draw = AdapterDraw::kInTurn;
  const Load in_turn = *make_load(options);
  EXPECT_EQ(in_turn.requests[0].adapter, "a");
  EXPECT_EQ(in_turn.requests[5].adapter, "c");

  options.adapters.clear();
  const Load plain = *make_load(options);
  for (std::size_t i = 0; i < plain.requests.size(); ++i) {
    EXPECT_EQ(plain.requests[i].adapter, "");
    EXPECT_EQ(plain.requests[i].arrival_s, skewed.requests[i].arrival_s);
  }
}

TEST(Load, PromptsShareOnlyTheirBlocks) {
  const auto ids = [](const LoadRequest& request, std::size_t index, std::uint64_t seed = 1, std::uint64_t run = 1) {
    return prompt_ids(request, index, {.seed = seed, .run = run, .vocab_size = 2048});
  };
  const auto common = [](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  };
  const LoadRequest plain{.input_tokens = 700};
  EXPECT_EQ(ids(plain, 0), ids(plain, 0));
  EXPECT_LT(common(ids(plain, 0), ids(plain, 1)), 4);
  EXPECT_LT(common(ids(plain, 0), ids(plain, 0, 1, 2)), 4);
  EXPECT_LT(common(ids(plain, 0), ids(plain, 0, 2, 1)), 4);

  const LoadRequest first{.input_tokens = 700, .blocks = {0, 5}};
  const LoadRequest second{.input_tokens = 1100, .blocks = {0, 6, 7}};
  EXPECT_NEAR(static_cast<double>(common(ids(first, 0), ids(second, 1))), kBlockTokens, 3);
  EXPECT_LT(common(ids(first, 0), ids(plain, 0)), 4);
  const std::vector<std::int64_t> tokens = ids(first, 0);
  EXPECT_EQ(tokens.size(), 700U);
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  EXPECT_GE(*least, 0);
  EXPECT_LT(*most, 2048);
  EXPECT_GT(*most, 1800);
}

TEST(Load, ReadsPublishedTraces) {
  for (const char* name : {"azure/AzureLLMInferenceTrace_conv.csv", "azure/AzureLLMInferenceTrace_code.csv",
                           "mooncake_conversation.jsonl"}) {
    const std::string path = test::shared_data(std::string("traces/") + name);
    if (path.empty()) GTEST_SKIP() << "no shared data: traces";
    const Result<Load> load = make_load({.trace = path, .num_prompts = 5000});
    ASSERT_TRUE(load.ok()) << load.status().message();
    EXPECT_EQ(load->requests.size(), 5000U);
    const std::vector<double> times = *arrivals_at(*load, 8);
    EXPECT_NEAR(times.back(), 4999 / 8.0, 1e-6);
  }
}

}  // namespace
}  // namespace tessera
