// Catches: text after a stop string handed out, text before it lost, a beginning of one handed out too early or held
// back for ever, and stop strings found where they must not be.
#include "tessera/engine/output_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/environment.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = *Tokenizer::load(testing::source_path("models/demo/tokenizer.json"));
  return loaded;
}

Request stopping_at(std::vector<std::string> texts, bool keep = false) {
  return {.stop = {.texts = std::move(texts), .keep_matched = keep}};
}

struct Told {
  std::string text;
  std::optional<std::string> matched;
  int pieces = 0;  // that were not empty
};

// One token a character at most, so that stop strings are cut anywhere.
Told tell(std::string_view text, const Request& request, std::size_t stops_from = 0) {
  OutputText output(tokenizer(), request);
  Told told;
  std::size_t count = 0;
  for (const char c : text) {
    const auto ids = *tokenizer().encode(std::string(1, c), {.add_special_tokens = false});
    for (const TokenId id : ids) {
      const std::string piece = output.push(id, count++ >= stops_from);
      told.text += piece;
      told.pieces += piece.empty() ? 0 : 1;
      if (output.matched()) {
        told.matched = output.matched();
        EXPECT_EQ(output.push(id, true), "");
        EXPECT_EQ(output.finish(), "");
        return told;
      }
    }
  }
  told.text += output.finish();
  return told;
}

TEST(OutputText, WithoutStopStringsEveryTokenIsHandedOut) {
  const Told told = tell("Once upon a time", {});
  EXPECT_EQ(told.text, "Once upon a time");
  EXPECT_EQ(told.pieces, 16);
}

TEST(OutputText, EndsBeforeTheStopString) {
  EXPECT_EQ(tell("one two three", stopping_at({"two"})).text, "one ");
  EXPECT_EQ(tell("one two three", stopping_at({"two"})).matched, "two");
  EXPECT_EQ(tell("one two three", stopping_at({"two"}, true)).text, "one two");
  EXPECT_EQ(tell("one", stopping_at({"one"})).text, "");
}

TEST(OutputText, WhatOnlyBeganLikeAStopStringIsHandedOut) {
  EXPECT_EQ(tell("aab aaab", stopping_at({"aaac"})).text, "aab aaab");
  EXPECT_EQ(tell("ends in tw", stopping_at({"two"})).text, "ends in tw");
  EXPECT_EQ(tell("aaaab", stopping_at({"aab"})).text, "aa") << "a beginning within a beginning";
}

TEST(OutputText, TheStopStringThatIsCompleteFirstWins) {
  EXPECT_EQ(tell("abcdef", stopping_at({"cdef", "de"})).text, "abc");
  EXPECT_EQ(tell("abcdef", stopping_at({"de", "bcde"})).text, "a") << "of two that end together the longer one";
}

TEST(OutputText, StopStringsAreNotLookedForTooEarly) {
  EXPECT_EQ(tell("no no no", stopping_at({"no"}), 4).text, "no no ");
}

}  // namespace
}  // namespace tessera
