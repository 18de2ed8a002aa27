// Catches: schemas whose compilation time grows with the lengths that they allow. Work is counted in time checks
// (grammar_watch.h), one for each tried token or byte. The count is the same on every machine.
#include <gtest/gtest.h>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/engine/grammar/grammar_test_util.h"
#include "tessera/engine/grammar/grammar_watch.h"

namespace tessera {
namespace {

std::int64_t work_of(const std::string& schema) {
  // Makes a new compiler, which has cached nothing.
  const test::Model model = test::load_model(testing::source_path("models/demo/tokenizer.json"), {"<|im_end|>"});
  GrammarWatch watch(600);
  const Status status = watch.run([&] {
    return model.compiler->compile({GrammarSpec::Kind::kJsonSchema, schema}).status();
  });
  EXPECT_TRUE(status.ok()) << schema << ": " << status.to_string();
  return watch.checks();
}

std::string of_length(int max) { return R"({"type":"string","maxLength":)" + std::to_string(max) + "}"; }

TEST(GrammarCost, LengthsAreFree) {
  const std::int64_t free = work_of(R"({"type":"string"})");
  const std::int64_t bounded = work_of(of_length(20));
  EXPECT_LT(bounded, 2 * free);
  EXPECT_LT(work_of(of_length(100000)), bounded + 100);
  EXPECT_LT(work_of(R"({"type":"string","minLength":7000,"maxLength":90000})"), bounded + 100);
  EXPECT_LT(work_of(R"({"type":"string","minLength":7000})"), bounded + 100);
  EXPECT_LT(work_of(R"({"type":"string","pattern":"^[A-Z][^;]*$","maxLength":3000})"), 2 * bounded);
}

TEST(GrammarCost, StringsShareTheirCharacters) {
  const auto object = [](bool bounded) {
    std::string properties;
    for (int i = 0; i < 40; ++i) {
      properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) +
                    "\":" + (bounded ? of_length(100 + i) : R"({"type":"string"})");
    }
    return R"({"type":"object","properties":{)" + properties + "}}";
  };
  EXPECT_LT(work_of(object(true)), 2 * work_of(object(false)));
}

// The compiler makes one mask for each state of the automaton. Each mask takes one walk over the vocabulary.
TEST(GrammarCost, AutomataAreWalked) {
  const auto tokens = static_cast<std::int64_t>(test::demo().tokenizer.vocab_size());
  EXPECT_LT(work_of(R"({"type":"string","pattern":"a","maxLength":60})"), 200 * tokens);
}

}  // namespace
}  // namespace tessera
