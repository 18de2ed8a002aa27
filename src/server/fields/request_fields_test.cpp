// Catches: a field of OpenAI's, Anthropic's, SGLang's or vLLM's requests that is accepted without effect, or is not
// treated as request_fields.json (and so docs/request-fields.md) says; and a misspelt field that is silently accepted.
#include "tessera/server/fields/request_fields.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tessera/server/fields/request_fields_test_util.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

class RequestFields : public FieldsTest {};

TEST_F(RequestFields, AFieldThatIsServedHasAnEffect) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  for_each({"served"}, [&](const Json& row, const std::string& object) {
    const std::string body = request_of(row, object, row.find("try"));
    const Outcome with = send(object, body, model_);
    if (row.find("fails") != nullptr) {
      ASSERT_TRUE(with.error.has_value()) << body;
      EXPECT_EQ(with.error->param, param_of(row, object));
      return;
    }
    ASSERT_FALSE(with.error.has_value()) << body << "\n" << with.error->message;
    const Outcome base = send(object, request_of(row, object, nullptr), model_);
    ASSERT_EQ(base.error.has_value(), row.find("refused_without") != nullptr) << body;
    EXPECT_NE(with.shown, base.shown) << body;
  });
}

// Some fields have an effect only together with other fields. The field's row in request_fields.json lists the others
// in "with". The test sends the field without them. If the row has "alone", the field must be accepted and have no
// effect. Otherwise, the field must be refused or have an effect.
TEST_F(RequestFields, AQualifyingFieldAloneIsRefusedOrHarmless) {
  int harmless = 0;
  for_each({"served"}, [&](const Json& row, const std::string& object) {
    const Json* with = row.find("with");
    if (with == nullptr || with->find("messages") != nullptr || with->find("prompt") != nullptr) return;
    if (row.find("refused_without") != nullptr) return;  // the members in "with" are valid only together with the field
    const Json alone = without(row, "with");
    const Outcome outcome = send(object, request_of(alone, object, row.find("try")), model_);
    const std::string base = send(object, request_of(alone, object, nullptr), model_).shown;
    const bool said = row.find("alone") != nullptr;
    EXPECT_EQ(!outcome.error && outcome.shown == base, said) << row.dump();
    if (said) ++harmless;
  });
  EXPECT_GT(harmless, 5);
}

TEST_F(RequestFields, AHarmlessFieldHasNoEffect) {
  for_each({"harmless"}, [&](const Json& row, const std::string& object) {
    const Outcome with = send(object, request_of(row, object, row.find("try")), model_);
    ASSERT_FALSE(with.error.has_value()) << with.error->message;
    EXPECT_EQ(with.shown, send(object, request_of(row, object, nullptr), model_).shown);
  });
}

TEST_F(RequestFields, ARefusedFieldIsNamedUnlessEmpty) {
  // This option must not change what is refused here, because it is only about unknown fields.
  model_.served.allow_unknown_fields = true;
  for_each({"refused", "checked"}, [&](const Json& row, const std::string& object) {
    const Outcome refused = send(object, request_of(row, object, row.find("try")), model_);
    ASSERT_TRUE(refused.error.has_value());
    EXPECT_EQ(refused.error->http_status, 400);
    EXPECT_EQ(refused.error->code, "unsupported_value");
    EXPECT_EQ(refused.error->param, param_of(row, object));
    EXPECT_THAT(refused.error->message, HasSubstr(param_of(row, object)));
    Json::Array off = {Json()};
    if (const Json* accepted = row.find("accepted"))
      off.insert(off.end(), accepted->as_array().begin(), accepted->as_array().end());
    const Outcome base = send(object, request_of(row, object, nullptr), model_);
    for (const Json& value : off) {
      const Outcome with = send(object, request_of(row, object, &value), model_);
      const bool same_error = base.error && with.error && base.error->message == with.error->message;
      EXPECT_TRUE(same_error || !with.error) << value.dump() << ": " << with.error->message;
      EXPECT_EQ(with.shown, base.shown) << value.dump();
    }
  });
}

TEST_F(RequestFields, EveryFieldHasOneRow) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Json& row : fields().as_array()) {
    for (const auto& [object, known_by] : row.find("on")->as_object())
      EXPECT_TRUE(seen.emplace(row.find("name")->as_string(), object).second) << row.dump();
  }
}

TEST_F(RequestFields, AnUnknownFieldIsRefusedWithTheNearestName) {
  struct Case {
    const char* object;
    const char* body;
    const char* param;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"chat", R"({"messages": [{"role": "user", "content": "a"}], "temprature": 0})", "temprature",
            "did you mean \"temperature\"?"},
           {"completions", R"({"prompt": "a", "max_token": 5})", "max_token", "\"max_tokens\""},
           {"completions", R"({"prompt": "a", "zzzzzzzz": {"a": []}})", "zzzzzzzz", "is not known"},
           {"generate", R"({"text": "a", "temperature": 0})", "temperature", "\"sampling_params\""},
           {"sampling_params", R"({"text": "a", "sampling_params": {"topk": 5}})", "sampling_params.topk", "\"top_k\""},
           {"stream_options", R"({"prompt": "a", "stream": true, "stream_options": {"usage": true}})",
            "stream_options.usage", "is not known"},
           {"structured_outputs", R"({"prompt": "a", "structured_outputs": {"regexp": "a"}})",
            "structured_outputs.regexp", "\"regex\""},
           {"responses", R"({"input": "a", "max_tokens": 5})", "max_tokens", "is not known"},
           {"tokenize", R"({"prompt": "a", "add_special_token": true})", "add_special_token", "add_special_tokens"},
           {"messages",
            R"({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "sytem": "a"})", "sytem",
            "\"system\""},
           {"count_tokens", R"({"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 5})",
            "max_tokens", "is not known"},
           {"detokenize", R"({"tokens": [5], "ids": [5]})", "ids", "is not known"},
           {"embeddings", R"({"input": "a", "dimension": 2})", "dimension", "\"dimensions\""},
           {"rerank", R"({"query": "a", "documents": ["b"], "topn": 2})", "topn", "\"top_n\""},
           {"score", R"({"text_1": "a", "text_2": "b", "text_3": "c"})", "text_3", "\"text_1\""},
           {"label_score", R"({"query": [5], "items": [[6]], "label_token_id": [1]})", "label_token_id",
            "\"label_token_ids\""},
       }) {
    SCOPED_TRACE(c.body);
    const Outcome refused = send(c.object, c.body, model_);
    ASSERT_TRUE(refused.error.has_value());
    EXPECT_EQ(refused.error->http_status, 400);
    EXPECT_EQ(refused.error->code, "unknown_parameter");
    EXPECT_EQ(refused.error->param, c.param);
    EXPECT_THAT(refused.error->message, HasSubstr(c.message));
  }
}

TEST_F(RequestFields, UnknownFieldsMayBeAllowed) {
  model_.served.allow_unknown_fields = true;
  EXPECT_FALSE(
      send("completions", R"({"prompt": "a", "temprature": 0, "stream": true, "stream_options": {"usage": 1}})", model_)
          .error);
  EXPECT_FALSE(send("generate", R"({"text": "a", "x": 1, "sampling_params": {"y": 1}})", model_).error);
}

TEST_F(RequestFields, AListOfDefaultsCountsAsAbsent) {
  EXPECT_FALSE(send("generate", R"({"text": ["a", "b"], "lora_path": [null, null], "image_data": []})", model_).error);
  EXPECT_EQ(send("generate", R"({"text": ["a", "b"], "lora_path": [null, "x"]})", model_).error->param, "lora_path");
}

}  // namespace
}  // namespace tessera::test
