// Catches: keys and values that a failed forward left undefined, and that later requests find in the prefix cache; and
// requests that end because another request's forward failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/fake_device.h"
#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Makes a request of `prompt` tokens; a longer prompt begins with the shorter ones.
Request prompt_of(std::int64_t prompt) { return test::request(prompt, 6); }

EngineOptions two_in_flight(const std::string& model) {
  EngineOptions options = test::small_options();
  options.model_path = testing::data_path("goldens/" + model);
  options.device = "cpu";
  options.context_length = 128;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  options.overlap_schedule = true;
  return options;
}

struct Observed {
  std::unique_ptr<Engine> engine;
  FakeDevice* device = nullptr;
};

Observed start(const std::string& model) {
  std::unique_ptr<FakeDevice> device = FakeDevice::create({}, {.threads = 1}).value();
  Observed made{.engine = nullptr, .device = device.get()};
  Result<std::unique_ptr<Engine>> engine = Engine::create(two_in_flight(model), std::move(device));
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  made.engine = *std::move(engine);
  return made;
}

class FailedForward : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, FailedForward,
                         ::testing::Values("llama", "mistral-swa", "qwen2-swa", "glm4-moe-lite", "qwen3.5-text"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace_if(
                               text.begin(), text.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return text;
                         });

// Serves requests in rounds. Each round serves the requests `asked` and, when they have ended, the request `later`. In
// round n the n-th replay fails as `fault` says. Checks that every request that does not fail gets the same tokens as
// in a run alone. Returns the number of rounds in which the first request failed and the second did not.
int rounds_with_one_failure(const std::string& model, const std::vector<Request>& asked, const Request& later,
                            std::int64_t FaultPlan::*fault = &FaultPlan::replay_lost_at) {
  std::vector<std::vector<TokenId>> right;
  for (const Request& one : {asked[0], asked[1], later})
    right.push_back(test::run_one(*start(model).engine, one).output_ids);

  const Observed world = start(model);
  int only_first_failed = 0;
  for (int n = 1; n < 60; ++n) {
    world.engine->flush_prefix_cache();
    std::vector<RequestId> ids;
    for (const Request& one : asked) ids.push_back(world.engine->submit(one).value());
    FaultPlan plan;
    plan.*fault = n;
    world.device->set_plan(plan);
    std::vector<bool> failed(asked.size());
    while (!world.engine->idle()) {
      const auto events = world.engine->step();
      EXPECT_TRUE(events.ok()) << n << ": " << events.status().to_string();
      if (!events.ok()) return 0;
      for (const RequestEvent& event : *events) {
        if (event.finish != FinishReason::kError) continue;
        EXPECT_THAT(event.error.message(), HasSubstr("injected")) << n;
        failed[event.request == ids[0] ? 0 : 1] = true;
      }
    }
    const bool past_the_last = world.device->counts().faults == 0;
    world.device->set_plan({});
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::optional<Completion> done = world.engine->take(ids[i]);
      EXPECT_TRUE(done.has_value());
      if (failed[i] || !done) continue;
      EXPECT_EQ(done->output_ids, right[i]) << "request " << i << ", replay " << n;
    }
    only_first_failed += failed[0] && !failed[1] ? 1 : 0;
    EXPECT_EQ(test::run_one(*world.engine, later).output_ids, right[2]) << "replay " << n;
    if (past_the_last) break;
  }
  return only_first_failed;
}

// A forward is lost on the device while the next forward, which reads the lost forward's pages, is in flight.
TEST_P(FailedForward, LeavesNoKeysToLaterRequests) {
  EXPECT_GT(rounds_with_one_failure(GetParam(), {prompt_of(40), prompt_of(60)}, prompt_of(52)), 2)
      << "the other one goes on, and reads what the first left";
}

// A forward runs several graphs in turn. If one graph cannot be launched, the graphs before it have already run. They
// run again when the forward is repeated. This must not change any token.
TEST_P(FailedForward, ARefusedReplayChangesNoTokens) {
  rounds_with_one_failure(GetParam(), {prompt_of(40), prompt_of(60)}, prompt_of(52), &FaultPlan::replay_fails_at);
}

// Later requests take the device rows that held a failed prompt's embeddings.
TEST(FailedForwardOfEmbeddings, LeavesNoRowsToLaterRequests) {
  const std::int64_t hidden = start("llama").engine->config().hidden_size;
  const auto embedded = [hidden](std::int64_t prompt) {
    Request made = prompt_of(prompt);
    made.prompt.clear();
    for (std::int64_t i = 0; i < prompt * hidden; ++i)
      made.input_embeds.push_back(static_cast<float>((i * 37 + prompt * 11) % 101 - 50) * 1e-3f);
    return made;
  };
  EXPECT_GT(rounds_with_one_failure("llama", {embedded(40), embedded(60)}, embedded(52)), 2);
}

}  // namespace
}  // namespace tessera
