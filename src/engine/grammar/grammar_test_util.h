// Helpers of the grammar tests: tokenizers, each with a grammar compiler for its vocabulary; the token ids that a mask
// allows, as a list; and random texts that follow a grammar.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/text/tokenizer.h"

namespace tessera::test {

struct Model {
  Tokenizer tokenizer;
  std::int64_t vocab_size;  // larger than the tokenizer's vocabulary
  std::vector<TokenId> end_ids;
  std::unique_ptr<GrammarCompiler> compiler;

  bool is_end(TokenId id) const { return std::ranges::find(end_ids, id) != end_ids.end(); }
};

inline Model make_model(Tokenizer tokenizer, const std::vector<std::string>& ends) {
  std::vector<TokenId> end_ids;
  for (const std::string& end : ends) end_ids.push_back(tokenizer.token_to_id(end).value());
  const std::int64_t vocab_size = tokenizer.vocab_size() + 100;
  auto compiler = GrammarCompiler::create(tokenizer, vocab_size, end_ids);
  EXPECT_TRUE(compiler.ok()) << compiler.status().to_string();
  return {std::move(tokenizer), vocab_size, end_ids, std::move(compiler).value()};
}

inline Model load_model(const std::string& path, const std::vector<std::string>& ends) {
  Result<Tokenizer> tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().to_string());
  return make_model(std::move(tokenizer).value(), ends);
}

inline Model& demo() {
  static Model model = load_model(testing::source_path("models/demo/tokenizer.json"), {"<|endoftext|>", "<|im_end|>"});
  return model;
}

inline std::vector<std::uint32_t> mask_of(const Model& model, GrammarMatcher& matcher) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(model.vocab_size)), 0xDEADBEEF);
  matcher.fill_mask(mask);
  return mask;
}

inline bool is_set(const std::vector<std::uint32_t>& mask, TokenId id) {
  return (mask[id.index() / 32] >> (id.index() % 32) & 1) != 0;
}

inline std::vector<TokenId> ids_of(const std::vector<std::uint32_t>& mask) {
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(mask.size() * 32); ++i) {
    if (is_set(mask, TokenId(i))) ids.emplace_back(i);
  }
  return ids;
}

// Generates one text from tokens that the masks allow: twelve random ones, and then tokens that lead to an end
// (way_out()). Checks that the grammar forbids an end after each prefix for which `may_end` returns false. With
// `exact`, also checks that the grammar allows an end after every prefix for which `may_end` returns true.
struct Walk {
  Model& model;
  GrammarSpec spec;
  std::function<bool(const std::string&)> may_end;
  bool exact = true;

  std::string run(unsigned seed) const {
    const auto grammar = model.compiler->compile(spec);
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    if (!grammar.ok()) return "";
    GrammarMatcher matcher(*grammar);
    std::mt19937 random(seed);
    std::vector<TokenId> text_ids;
    for (int step = 0; step < 400; ++step) {
      const std::vector<TokenId> allowed = ids_of(mask_of(model, matcher));
      const std::string text = model.tokenizer.decode(text_ids);
      bool ends = false;
      for (const TokenId id : allowed) {
        ends |= model.is_end(id);
        EXPECT_LT(id.value(), model.tokenizer.vocab_size());
        EXPECT_TRUE(model.is_end(id) || !model.tokenizer.is_special(id)) << id.value();
      }
      if (ends || exact) {
        EXPECT_EQ(may_end(text), ends) << "'" << text << "'";
      }
      EXPECT_EQ(matcher.finished(), ends && allowed.size() == model.end_ids.size()) << text;
      if (allowed.empty()) {
        ADD_FAILURE() << "no way on from '" << text << "'";
        return text;
      }
      const TokenId id = step < 12 ? allowed[random() % allowed.size()] : way_out(allowed, random);
      const Status accepted = matcher.accept(id);
      EXPECT_TRUE(accepted.ok()) << accepted.to_string();
      if (!accepted.ok()) return text;
      if (model.is_end(id)) {
        EXPECT_TRUE(matcher.finished());
        EXPECT_FALSE(matcher.accept(id).ok()) << "a token after the end";
        return text;
      }
      text_ids.push_back(id);
    }
    ADD_FAILURE() << "no end after 400 tokens: " << model.tokenizer.decode(text_ids);
    return "";
  }

  // Returns an end token if one is allowed. Otherwise returns an allowed token that often completes a text, such as a
  // closing bracket. If there is none, returns a random allowed token.
  TokenId way_out(const std::vector<TokenId>& allowed, std::mt19937& random) const {
    for (const TokenId id : allowed) {
      if (model.is_end(id)) return id;
    }
    for (const char* closing : {"\"", "@", ".", ")", "]", "}"}) {
      const std::optional<TokenId> id = model.tokenizer.token_to_id(closing);
      if (id && std::ranges::find(allowed, *id) != allowed.end()) return *id;
    }
    return allowed[random() % allowed.size()];
  }

  void run_all(unsigned times) const {
    for (unsigned seed = 0; seed < times && !::testing::Test::HasFailure(); ++seed) run(seed);
  }
};

class GrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarCompiler::available()) GTEST_SKIP() << "built without xgrammar";
  }
};

}  // namespace tessera::test
