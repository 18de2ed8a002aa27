// Catches: a template whose messages' first token is not found, or a wrong one; and branch points that are not where
// messages begin.
#include "tessera/server/openai/branch_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using test::demo_tokenizer;
using test::encode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";

std::optional<TokenId> start_of(const char* source) {
  return find_message_start(*ChatTemplate::parse(source), demo_tokenizer(), {.add_generation_prompt = true});
}

// Returns the prompt from each branch point to the next one, or to its end.
std::vector<std::string> parts(const std::string& text, bool is_new) {
  const std::vector<TokenId> ids = encode(text);
  std::vector<std::string> parts;
  std::vector<std::int64_t> at = find_branch_tokens(ids, encode("<|im_start|>").at(0), is_new);
  at.push_back(std::ssize(ids));
  for (std::size_t i = 0; i + 1 < at.size(); ++i)
    parts.push_back(demo_tokenizer().decode(
        std::span(ids).subspan(static_cast<std::size_t>(at[i]), static_cast<std::size_t>(at[i + 1] - at[i])),
        /*skip_special=*/false));
  return parts;
}

TEST(BranchTokens, FindsTheTokenBeforeEveryMessage) {
  ASSERT_EQ(encode("<|im_start|>").size(), 1u);
  EXPECT_EQ(start_of(kChatMl), encode("<|im_start|>")[0]);
  EXPECT_EQ(start_of(test::kTestTemplate), std::nullopt) << "its messages begin with text";
  EXPECT_EQ(start_of("{{ raise_exception('no') }}"), std::nullopt);
}

TEST(BranchTokens, ANewConversationBranchesBeforeItsQuestion) {
  const std::string system = "<|im_start|>system\ns<|im_end|>\n";
  const std::string context = "<|im_start|>user\nc<|im_end|>\n";
  const std::string question = "<|im_start|>user\nq<|im_end|>\n";
  const std::string turn = "<|im_start|>assistant\n";
  EXPECT_THAT(parts(system + context + question + turn, /*is_new=*/true), ElementsAre(context, question, turn));
  EXPECT_THAT(parts(system + question + turn, /*is_new=*/true), ElementsAre(question, turn));
  EXPECT_THAT(parts(question + turn, /*is_new=*/true), ElementsAre(turn));
  EXPECT_THAT(parts(turn, /*is_new=*/true), IsEmpty());
}

TEST(BranchTokens, LaterTurnsBranchAfterTheSystemPrompt) {
  const std::string rest = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nq";
  EXPECT_THAT(parts("<|im_start|>system\ns" + rest + "<|im_start|>assistant\n", /*is_new=*/false),
              ElementsAre(rest, "<|im_start|>assistant\n"));
}

}  // namespace
}  // namespace tessera
