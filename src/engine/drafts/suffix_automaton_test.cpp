// Catches: an automaton that misses a text's longest suffix that also occurs earlier, or reports a wrong length or
// place.
#include "tessera/engine/drafts/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tessera {
namespace {

// Returns the length of the longest suffix of `text` that occurs earlier, found by trying all suffixes.
std::int64_t longest_repeated_end(const std::vector<TokenId>& text) {
  for (std::size_t length = text.size() - 1; length > 0; --length)
    if (std::search(text.begin(), text.end() - 1, text.end() - static_cast<std::ptrdiff_t>(length), text.end()) !=
        text.end() - 1)
      return static_cast<std::int64_t>(length);
  return 0;
}

void check(const std::vector<int>& ids) {
  SuffixAutomaton automaton;
  std::vector<TokenId> text;
  for (const int id : ids) {
    text.emplace_back(id);
    automaton.append(TokenId(id));
    const SuffixAutomaton::Match& match = automaton.match();
    ASSERT_EQ(match.length, longest_repeated_end(text)) << "after " << text.size() << " tokens";
    ASSERT_LT(match.end, automaton.size());
    ASSERT_TRUE(std::equal(text.end() - match.length, text.end(), text.begin() + match.end - match.length))
        << "the text's last " << match.length << " tokens do not end at " << match.end;
  }
}

TEST(SuffixAutomaton, FindsTheLongestRepeatedEndOfRandomTexts) {
  std::mt19937 random(7);
  for (int run = 0; run < 200; ++run) {
    std::uniform_int_distribution<int> id(0, 1 + run % 5);
    std::vector<int> ids(1 + random() % 90);
    for (int& each : ids) each = id(random);
    check(ids);
  }
}

TEST(SuffixAutomaton, FindsItInRepeatedTokens) { check(std::vector<int>(200, 3)); }

TEST(SuffixAutomaton, MatchesALateOccurrence) {
  SuffixAutomaton automaton;
  for (const int id : {1, 2, 3, 9, 1, 2, 4, 8, 1, 2}) automaton.append(TokenId(id));
  EXPECT_EQ(automaton.match().length, 2);
  EXPECT_EQ(automaton.match().end, 6) << "the occurrence before 4, not the one before 3";
}

}  // namespace
}  // namespace tessera
