// Catches: texts or tokens that change on their way through the C interface, for example at a NUL byte or a special
// token; and invalid ids that are accepted.
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/capi/capi_test_util.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;

std::vector<std::int32_t> ids_of(const std::string& text, int special) {
  Error error;
  std::int32_t* ids = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(tessera_tokenize(demo(), text.data(), text.size(), special, &ids, &count, error.out()), TESSERA_OK)
      << error.message();
  std::vector<std::int32_t> all(ids, ids + count);
  tessera_free(ids);
  return all;
}

std::string text_of(const std::vector<std::int32_t>& ids) {
  Error error;
  char* text = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(tessera_detokenize(demo(), ids.data(), ids.size(), 1, &text, &size, error.out()), TESSERA_OK)
      << error.message();
  std::string whole(text, size);
  tessera_free(text);
  return whole;
}

TEST(Texts, SurviveARoundTripThroughTokens) {
  const std::string text = "Once upon a time";
  const std::vector<std::int32_t> ids = ids_of(text, 0);
  EXPECT_FALSE(ids.empty());
  EXPECT_EQ(text_of(ids), text);
  EXPECT_TRUE(ids_of("", 0).empty());
  EXPECT_EQ(text_of({}), "");

  std::int32_t* up_to_nul = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(tessera_tokenize(demo(), "Once upon a time", SIZE_MAX, 0, &up_to_nul, &count, nullptr), TESSERA_OK);
  EXPECT_EQ(std::vector<std::int32_t>(up_to_nul, up_to_nul + count), ids);
  tessera_free(up_to_nul);
}

TEST(Texts, InvalidIdsAreRefused) {
  Error error;
  char* text = nullptr;
  for (const std::int32_t id : {-1, INT32_MAX}) {
    EXPECT_EQ(tessera_detokenize(demo(), &id, 1, 0, &text, nullptr, error.out()), TESSERA_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr(std::to_string(id)));
    EXPECT_EQ(text, nullptr);
  }
}

TEST(Texts, ChatsAreRenderedLikeTheServers) {
  const EnginePtr engine = open_demo(
      R"(, "chat-template": "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")");
  Error error;
  char* prompt = nullptr;
  ASSERT_EQ(tessera_apply_chat_template(engine.get(), R"({"messages": [{"role": "user", "content": "Hi"}]})", &prompt,
                                        error.out()),
            TESSERA_OK)
      << error.message();
  EXPECT_EQ(taken(prompt), "user:Hi;assistant:");
  prompt = nullptr;
  EXPECT_EQ(tessera_apply_chat_template(engine.get(), R"({"messages": 1})", &prompt, error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_STREQ(tessera_error_field(error.error), "messages");
  EXPECT_EQ(prompt, nullptr);
}

}  // namespace
}  // namespace tessera::capi::test
