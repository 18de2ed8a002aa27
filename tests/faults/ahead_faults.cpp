// Faults in a step behind which another step is enqueued.
//
// Catches: results or values of a failed step that are used as those of a later step; a request that fails although
// only the step before its own has failed; keys of a failed step that reach a later request.
#include <gmock/gmock.h>

#include <array>
#include <optional>

#include "faults.h"

namespace tessera::testing {
namespace {

// Returns requests whose longer prompts begin with the shorter ones.
const std::array<Request, 3>& family() {
  static const std::array<Request, 3> made = {request(40, 6), request(52, 6), request(48, 6)};
  return made;
}
// The first call starts engines, so it must come before the start of another engine whose devices the test uses.
const std::vector<Completion>& right_family(const EngineOptions& one_rank) {
  static const std::vector<Completion> made = [&] {
    std::vector<Completion> each;
    for (const Request& one : family()) each.push_back(Engine::create(one_rank).value()->run({&one, 1}).value()[0]);
    return each;
  }();
  return made;
}

// Runs two requests, the second of which begins like the first, while the `n`-th `fault` of a rank's device occurs.
// Then runs a third request, which begins like both. Checks that the third request, and each request that ends without
// an error, has the tokens that one rank without faults returns. Returns whether the first request failed and the
// second did not.
bool first_alone_fails(Engine& engine, const std::vector<Completion>& right, int rank, std::int64_t FaultPlan::*fault,
                       std::int64_t n) {
  const std::array<Request, 3>& asked = family();
  FakeDevice& device = device_of(rank);
  engine.flush_prefix_cache();
  std::array<RequestId, 2> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = engine.submit(asked[i]).value();
  FaultPlan plan;
  plan.*fault = n;
  device.set_plan(plan);
  while (!engine.idle()) {
    const Status stepped = engine.step().status();
    EXPECT_TRUE(stepped.ok()) << n << ": " << stepped.to_string();
    if (!stepped.ok()) return false;
  }
  EXPECT_EQ(device.counts().faults, 1) << n;
  device.set_plan({});
  std::array<bool, 2> failed{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<Completion> done = engine.take(ids[i]);
    failed[i] = done->finish == FinishReason::kError;
    if (failed[i]) continue;
    EXPECT_EQ(done->output_ids, right[i].output_ids) << "request " << i << ", " << n;
  }
  const Result<std::vector<Completion>> later = engine.run({&asked[2], 1});
  EXPECT_TRUE(later.ok()) << n << ": " << later.status().to_string();
  if (!later.ok()) return false;
  EXPECT_EQ((*later)[0].output_ids, right[2].output_ids) << "the later one, " << n;
  return failed[0] && !failed[1];
}

// Steps that are enqueued ahead read the keys of the failed step. These keys are undefined and must reach no later
// request.
TEST_P(FaultBeforeLaterSteps, MakesThemComputedAgain) {
  const std::vector<Completion>& right = right_family(one_rank(of()));
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  // Injects faults only into the three forwards that compute prompts. In a decode forward, one graph has all sums over
  // the ranks, so all ranks must replay that graph.
  const std::int64_t last = 3 * group.engine().runner().prefill().executable().graph().num_pieces();
  for (const int rank : {0, 1}) {
    int alone = 0;
    for (std::int64_t n = 1; n <= last; n += 2)
      alone += first_alone_fails(group.engine(), right, rank, of().alone_at_fault, n) ? 1 : 0;
    EXPECT_GT(alone, of().num_alone) << "the other one goes on";
  }
  expect_end(group);
}

// One rank fails after its last sum. The other rank has already begun the next forward, which fails too, because the
// failed rank takes no part in it.
TEST_P(FaultAfterTheLastSum, MakesTheNextForwardComputedAgain) {
  const std::vector<Completion>& right = right_family(one_rank(of()));
  Group group(of());
  ASSERT_TRUE(group.started.ok()) << group.started.to_string();
  const std::int64_t last = group.engine().runner().prefill().executable().graph().num_pieces();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(first_alone_fails(group.engine(), right, 1, &FaultPlan::replay_fails_at, last)) << i;
  expect_end(group);
}

}  // namespace
}  // namespace tessera::testing
