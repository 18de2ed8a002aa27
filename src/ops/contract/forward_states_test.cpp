// Tests the states in which operators are bound or run, such as capturing. A scope opens one state. Catches: an inner
// scope whose end closes the state of the outer scope; an error that leaves a state open.
#include "tessera/ops/contract/forward_states.h"

#include <gtest/gtest.h>

#include "tessera/base/status.h"

namespace tessera {
namespace {

TEST(ForwardStates, NestAndEndWithTheirScope) {
  ForwardStates states;
  ForwardContext context;
  context.states = &states;
  EXPECT_FALSE(in_state(context, ForwardState::kCapturing));
  {
    const ForwardStates::Scope outer(&states, ForwardState::kCapturing);
    {
      const ForwardStates::Scope inner(&states, ForwardState::kCapturing);
      const ForwardStates::Scope other(&states, ForwardState::kCompiling);
      EXPECT_TRUE(in_state(context, ForwardState::kCapturing));
      EXPECT_TRUE(in_state(context, ForwardState::kCompiling));
    }
    EXPECT_TRUE(in_state(context, ForwardState::kCapturing)) << "the outer scope is open";
    EXPECT_FALSE(in_state(context, ForwardState::kCompiling));
    EXPECT_FALSE(in_state(context, ForwardState::kPiecewise));
  }
  EXPECT_FALSE(in_state(context, ForwardState::kCapturing));
}

TEST(ForwardStates, AnErrorEndsOpenStates) {
  ForwardStates states;
  const auto fails = [&]() -> Status {
    const ForwardStates::Scope capturing(&states, ForwardState::kCapturing);
    TRY(internal_error("a kernel refuses"));
    return ok_status();
  };
  EXPECT_FALSE(fails().ok());
  EXPECT_FALSE(states.in(ForwardState::kCapturing));
}

TEST(ForwardStates, NoStateIsOpenWithoutStates) {
  const ForwardStates::Scope capturing(nullptr, ForwardState::kCapturing);
  EXPECT_FALSE(in_state(ForwardContext{}, ForwardState::kCapturing));
}

}  // namespace
}  // namespace tessera
