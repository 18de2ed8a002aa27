// Catches: a turn whose prompt does not begin with the previous prompt and its output; sessions that share more than
// their system prompt; a session that does not wait for its sub-agent; a count of cacheable prompt tokens
// (known_tokens) that includes tokens that no cache can have; and sessions whose prompts take more memory than a
// machine has.
#include "tessera/load/agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kOutput = 20;

LoadOptions options_of(std::int64_t sessions) {
  return {.seed = 7,
          .agents = {.sessions = sessions, .turns = 12, .first_tokens = 400, .context = 3000, .tool_seconds = 0.5},
          .output_tokens = kOutput};
}

std::vector<std::int64_t> ids_of(const Load& load, std::size_t i, const std::vector<RequestRecord>& records) {
  return prompt_ids(load.requests[i], i, {.seed = 1, .run = 1, .vocab_size = 1 << 20}, records);
}

std::int64_t common_tokens(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Returns records in which the output of request i has kOutput tokens, all with the id i.
std::vector<RequestRecord> answered(const Load& load) {
  std::vector<RequestRecord> records(load.requests.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    records[i].output_ids.assign(static_cast<std::size_t>(kOutput), static_cast<std::int64_t>(i));
  return records;
}

// Compares each request's prompt with every earlier prompt followed by its output. Expects that the request's
// known_tokens is the length of the longest common prefix.
void expect_known_tokens(const Load& load, const std::vector<RequestRecord>& records) {
  std::vector<std::vector<std::int64_t>> texts;  // prompts with their outputs
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    const LoadRequest& request = load.requests[i];
    std::vector<std::int64_t> ids = ids_of(load, i, records);
    EXPECT_EQ(std::ssize(ids), request.input_tokens);
    std::int64_t known = 0;
    for (const std::vector<std::int64_t>& text : texts) known = std::max(known, common_tokens(text, ids));
    EXPECT_EQ(known, request.known_tokens) << i;
    ids.insert(ids.end(), records[i].output_ids.begin(), records[i].output_ids.end());
    texts.push_back(std::move(ids));
  }
}

TEST(AgentLoad, KnownTokensAreInEarlierPromptsAndOutputs) {
  const Load load = *agent_load(options_of(5));
  expect_known_tokens(load, answered(load));
}

TEST(AgentLoad, UnreportedOutputsAreNotKnown) {
  Load load = *agent_load(options_of(5));
  std::vector<RequestRecord> records = answered(load);
  for (std::size_t i = 0; i < records.size(); i += 3) records[i].output_ids.clear();
  for (std::size_t i = 1; i < records.size(); i += 3) records[i].output_ids.resize(7);
  forget_unreported_outputs(load, records);
  expect_known_tokens(load, records);
}

TEST(AgentLoad, EqualResultsDifferByOneToken) {
  LoadOptions options = options_of(1);
  options.agents.equal_results = true;
  const Load load = *agent_load(options);
  for (const LoadRequest& request : load.requests) {
    if (!request.after) continue;
    EXPECT_NEAR(static_cast<double>(request.parts.back().tokens), (3000 - 400 - 11 * kOutput) / 11.0, 1);
  }
}

TEST(AgentLoad, SessionsHaveTheirTurnsAndEndAtTheContext) {
  const Load load = *agent_load(options_of(40));
  std::int64_t sessions = 0;
  std::int64_t longest = 0;
  std::set<std::size_t> waited_for;
  std::int64_t shared = 0;  // number of requests for which two requests wait
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    const LoadRequest& request = load.requests[i];
    longest = std::max(longest, request.input_tokens);
    if (!request.after) {
      ++sessions;
      EXPECT_EQ(request.input_tokens, 400);
      continue;
    }
    EXPECT_LT(*request.after, i);
    EXPECT_EQ(request.arrival_s, 0.5);
    shared += !waited_for.insert(*request.after).second;
  }
  EXPECT_EQ(sessions, 40);
  EXPECT_EQ(longest, 3000);
  // 44 % of sessions have a sub-agent with three requests and a branch with one request. Sub-agent and branch begin
  // when the same request ends.
  EXPECT_NEAR(static_cast<double>(shared), 40 * 0.44, 9);
  EXPECT_EQ(std::ssize(load.requests), 40 * 12 + 4 * shared);
}

TEST(AgentLoad, OnlySessionsHaveARate) {
  const Load load = *agent_load(options_of(3));
  const std::vector<double> times = *arrivals_at(load, 0.25);
  const std::vector<double> at_once = *arrivals_at(load, INFINITY);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i], load.requests[i].after ? 0.5 : 4 * load.requests[i].arrival_s);
    EXPECT_EQ(at_once[i], load.requests[i].after ? 0.5 : 0);
  }
}

TEST(AgentLoad, OutputsThatTheServerDoesNotReportAreDrawn) {
  const Load load = *agent_load(options_of(1));
  const std::vector<std::int64_t> ids = ids_of(load, 1, {});
  EXPECT_EQ(common_tokens(ids_of(load, 0, {}), ids), 400);
  EXPECT_EQ(std::ssize(ids), load.requests[1].input_tokens);
  EXPECT_EQ(ids, ids_of(load, 1, std::vector<RequestRecord>(load.requests.size())));
}

TEST(AgentLoad, RefusesAContextWithoutRoomForTheTurns) {
  LoadOptions options = options_of(1);
  options.agents.context = 400 + 11 * (kOutput + 1);
  EXPECT_TRUE(agent_load(options).ok());
  --options.agents.context;
  EXPECT_THAT(agent_load(options).status().message(), HasSubstr("--agent-context: 630 is not accepted"));
  EXPECT_THAT(agent_load(options).status().message(), HasSubstr("at least 631"));
}

TEST(AgentLoad, RefusesSessionsWhosePromptsAreTooLarge) {
  LoadOptions options = options_of(87382);
  EXPECT_THAT(agent_load(options).status().message(),
              HasSubstr("--agents: 87382 is not accepted; with 12 turns each, at most 87381 are"));
  // With the largest number of sessions that is accepted, all prompts together have at most kMostParts parts, even with
  // few turns.
  options = options_of(200);
  options.agents.turns = 2;
  const Result<Load> load = agent_load(options);
  ASSERT_TRUE(load.ok());
  std::size_t parts = 0;
  for (const LoadRequest& request : load->requests) parts += request.parts.size();
  options.agents.sessions = kMostParts;
  const std::string message = agent_load(options).status().message();
  EXPECT_THAT(message, HasSubstr("at most 1398101 are"));
  EXPECT_LE(parts * (1398101 / 200), static_cast<std::size_t>(kMostParts));
}

TEST(PromptLatencies, AreGroupedByPromptLength) {
  Load load;
  std::vector<RequestRecord> records;
  for (const std::int64_t tokens : {10, 20, 90, 100}) {
    load.requests.push_back({.input_tokens = tokens, .known_tokens = tokens - 5});
    records.push_back({.sent_s = 1, .first_token_s = 1 + 1e-3 * static_cast<double>(tokens), .input_tokens = tokens});
  }
  load.requests.push_back(load.requests.back());
  records.push_back(records.back());
  records.back().failure = "lost";
  const std::vector<PromptLatency> latencies = prompt_latencies(load, records, 4);
  ASSERT_EQ(latencies.size(), 2U);
  EXPECT_EQ(latencies[0].requests, 2);
  EXPECT_NEAR(latencies[0].ttft.mean, 15, 1e-6);
  EXPECT_EQ(latencies[1].least_tokens, 78);
  EXPECT_EQ(latencies[1].end_tokens, 104);
  EXPECT_NEAR(latencies[1].ttft.p50, 95, 1e-6);
  EXPECT_EQ(latencies[1].new_tokens, 5);
}

}  // namespace
}  // namespace tessera
