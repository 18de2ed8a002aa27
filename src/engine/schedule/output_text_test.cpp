// Catches: output beyond a stop string; lost text before a stop string; the beginning of a stop string that is returned
// too early or held back forever; and a search for stop strings when it is forbidden.
#include "tessera/engine/schedule/output_text.h"

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

struct Read {
  std::string text;
  std::optional<std::string> matched;
  int pieces = 0;  // number of non-empty texts that OutputText returned
};

// Reads the text token by token. Tokens are at most one character long, so stop strings are cut at every place.
Read read_text(std::string_view text, const Request& request, std::size_t stops_from = 0) {
  OutputText output(tokenizer(), request);
  Read read;
  std::size_t count = 0;
  for (const char c : text) {
    const auto ids = *tokenizer().encode(std::string(1, c), {.add_special_tokens = false});
    for (const TokenId id : ids) {
      const std::string piece = output.push(id, count++ >= stops_from);
      read.text += piece;
      read.pieces += piece.empty() ? 0 : 1;
      if (output.matched()) {
        read.matched = output.matched();
        EXPECT_EQ(output.push(id, true), "");
        EXPECT_EQ(output.finish(), "");
        return read;
      }
    }
  }
  read.text += output.finish();
  return read;
}

TEST(OutputText, WithoutStopStringsEveryTokenIsHandedOut) {
  const Read read = read_text("Once upon a time", {});
  EXPECT_EQ(read.text, "Once upon a time");
  EXPECT_EQ(read.pieces, 16);
}

TEST(OutputText, EndsBeforeTheStopString) {
  EXPECT_EQ(read_text("one two three", stopping_at({"two"})).text, "one ");
  EXPECT_EQ(read_text("one two three", stopping_at({"two"})).matched, "two");
  EXPECT_EQ(read_text("one two three", stopping_at({"two"}, true)).text, "one two");
  EXPECT_EQ(read_text("one", stopping_at({"one"})).text, "");
}

TEST(OutputText, ReturnsTextThatOnlyBeginsLikeAStopString) {
  EXPECT_EQ(read_text("aab aaab", stopping_at({"aaac"})).text, "aab aaab");
  EXPECT_EQ(read_text("ends in tw", stopping_at({"two"})).text, "ends in tw");
  EXPECT_EQ(read_text("aaaab", stopping_at({"aab"})).text, "aa") << "a beginning within a beginning";
}

TEST(OutputText, TheStopStringThatIsCompleteFirstWins) {
  EXPECT_EQ(read_text("abcdef", stopping_at({"cdef", "de"})).text, "abc");
  EXPECT_EQ(read_text("abcdef", stopping_at({"de", "bcde"})).text, "a") << "of two that end together the longer one";
}

TEST(OutputText, StopStringsAreNotLookedForTooEarly) {
  EXPECT_EQ(read_text("no no no", stopping_at({"no"}), 4).text, "no no ");
}

}  // namespace
}  // namespace tessera
