// Catches: a replica that is overloaded; prefixes that are computed again although another replica has them; loads that
// are never removed; and a record of prefixes that grows forever.
#include "tessera/engine/ranks/replica_choice.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

std::vector<TokenId> prompt(std::int64_t tokens, std::int32_t salt) {
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < tokens; ++i) ids.emplace_back(salt * 1000 + i);
  return ids;
}

TEST(ReplicaChoice, EqualRequestsGoRoundTheReplicas) {
  ReplicaChoice choice(3, 1 << 16);
  std::map<int, int> counts;
  for (Ticket t = 0; t < 9; ++t) ++counts[choice.choose(t, prompt(100, static_cast<std::int32_t>(t)))];
  EXPECT_EQ(counts, (std::map<int, int>{{0, 3}, {1, 3}, {2, 3}}));
}

TEST(ReplicaChoice, APrefixIsLookedForWhereItWasComputed) {
  ReplicaChoice choice(2, 1 << 16);
  EXPECT_EQ(choice.choose(1, prompt(1000, 1)), 0);
  EXPECT_EQ(choice.choose(2, prompt(1000, 2)), 1);
  choice.ended(1);
  choice.ended(2);
  // This prompt is the beginning of the second one.
  std::vector<TokenId> again = prompt(1000, 2);
  again.resize(900);
  EXPECT_EQ(choice.choose(3, again), 1);
  choice.ended(3);
  EXPECT_EQ(choice.choose(4, prompt(1000, 1)), 0);
  choice.ended(4);
  choice.forget_prefixes();
  EXPECT_EQ(choice.choose(5, again), 0);
}

TEST(ReplicaChoice, PromptsOfOtherAdaptersShareNoPrefix) {
  ReplicaChoice choice(2, 1 << 16);
  EXPECT_EQ(choice.choose(1, prompt(1000, 1), "tuned"), 0);
  EXPECT_EQ(choice.choose(2, prompt(1000, 1), "other"), 1);
  choice.ended(1);
  choice.ended(2);
  EXPECT_EQ(choice.choose(3, prompt(1000, 1), "other"), 1);
  choice.ended(3);
  EXPECT_EQ(choice.choose(4, prompt(1000, 1), "tuned"), 0);
}

// A popular prefix does not keep one replica busy while other replicas idle, because at some point waiting for that
// replica costs more than the prefix saves.
TEST(ReplicaChoice, LeavesABusyReplicaThatHasThePrefix) {
  ReplicaChoice choice(2, 1 << 16);
  std::vector<int> chosen;
  for (Ticket t = 0; t < 12; ++t) {
    chosen.push_back(choice.choose(t, prompt(1024, 1)));
    choice.prompt_done(t);
  }
  // The cached prefix saves 1024 tokens. Five running requests count as 1000 tokens, and six as 1200.
  EXPECT_EQ(std::vector<int>(chosen.begin(), chosen.begin() + 6), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(chosen[6], 1);
}

TEST(ReplicaChoice, PromptsThatAreComputedWaitNoMore) {
  ReplicaChoice choice(2, 1 << 16);
  EXPECT_EQ(choice.choose(1, prompt(4000, 1)), 0);
  EXPECT_EQ(choice.choose(2, prompt(100, 2)), 1);
  EXPECT_EQ(choice.choose(3, prompt(100, 3)), 1);  // 4000 tokens wait on the other replica
  choice.prompt_done(1);
  EXPECT_EQ(choice.choose(4, prompt(100, 4)), 0);
  for (const Ticket t : {1, 2, 3, 4}) choice.ended(t);
  choice.ended(4);  // the ticket is unknown by now
  EXPECT_EQ(choice.replica_of(4), -1);
  EXPECT_EQ(choice.choose(5, prompt(10, 5)), 0);
}

TEST(ReplicaChoice, AFailedReplicaGetsNothing) {
  ReplicaChoice choice(2, 1 << 16);
  choice.leave_out(0);
  EXPECT_EQ(choice.serving(), 1);
  for (Ticket t = 0; t < 4; ++t) EXPECT_EQ(choice.choose(t, prompt(2000, 1)), 1);
}

TEST(ReplicaChoice, OldPrefixesAreForgotten) {
  ReplicaChoice choice(2, 640);  // 640 / 64 = 10 blocks for each replica
  EXPECT_EQ(choice.choose(0, prompt(640, 1)), 0);
  choice.ended(0);
  for (Ticket t = 1; t < 10; ++t) {
    choice.choose(t, prompt(640, static_cast<std::int32_t>(t) + 1));
    choice.ended(t);
  }
  choice.choose(10, prompt(64, 50));  // keeps replica 0 busy
  EXPECT_EQ(choice.choose(11, prompt(640, 1)), 1);
}

}  // namespace
}  // namespace tessera
