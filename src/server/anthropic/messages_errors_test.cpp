// Catches: malformed Messages requests that are accepted, or refused without the path of the field at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/anthropic/messages_request.h"
#include "tessera/server/images/vision_test_model.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BadMessage {
  const char* members;
  const char* param;
  const char* message;
};

void expect_refused_message(const BadMessage& c, const ServedModel& model) {
  SCOPED_TRACE(c.members);
  ApiResult<ApiJob> job = prepare_messages(model, std::string("{") + c.members + "}");
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().http_status, 400);
  EXPECT_EQ(job.error().param, c.param);
  EXPECT_THAT(job.error().message, HasSubstr(c.message));
}

ServedModel model_with_tools() {
  ServedModel model = test::test_model();
  model.tool_call_parser = "hermes";
  return model;
}

#define USER R"("model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}], )"
#define TURNS(turns) R"("model": "m", "max_tokens": 5, "messages": [)" turns "]"
#define BLOCKS(role, blocks) TURNS(R"({"role": ")" role R"(", "content": [)" blocks "]}")

TEST(MessagesErrors, NameTheFieldOfTheRequest) {
  for (const BadMessage& c : std::initializer_list<BadMessage>{
           {R"("max_tokens": 5, "messages": [{"role": "user", "content": "a"}])", "model", "missing"},
           {R"("model": "m", "messages": [{"role": "user", "content": "a"}])", "max_tokens", "required"},
           {R"("model": "m", "max_tokens": 5)", "messages", "at least one message"},
           {R"("model": "m", "max_tokens": 5, "messages": [])", "messages", "at least one message"},
           {R"("model": "m", "max_tokens": -1, "messages": [{"role": "user", "content": "a"}])", "max_tokens", "-1"},
           {USER R"("system": 5)", "system", "text blocks"},
           {USER R"("system": [{"type": "image"}])", "system[0].type", "\"text\""},
           {USER R"("stop_sequences": [""])", "stop_sequences", "not empty"},
           {USER R"("temperature": "hot")", "temperature", "hot"},
           {USER R"("thinking": {"type": "deep"})", "thinking.type", "\"adaptive\""},
           {USER R"("thinking": {"type": "enabled"})", "thinking.budget_tokens", "missing"},
           {USER R"("thinking": {"type": "enabled", "budget_tokens": 0})", "thinking.budget_tokens", "0"},
           {USER R"("output_config": {"effort": "huge"})", "output_config.effort", "\"xhigh\""},
           {USER R"("output_config": {"format": {"type": "xml"}})", "output_config.format.type", "json_schema"},
           {USER R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format.schema", "missing"},
           {USER R"("mcp_servers": [{"url": "http://a"}])", "mcp_servers", "no others"},
           {USER R"("temprature": 1)", "temprature", "temperature"},
       })
    expect_refused_message(c, model_with_tools());
}

TEST(MessagesErrors, NameTheBlockOfAMessage) {
  for (const BadMessage& c : std::initializer_list<BadMessage>{
           {TURNS("5"), "messages[0]", "an object"},
           {TURNS(R"({"role": "tool", "content": "a"})"), "messages[0].role", "\"assistant\""},
           {TURNS(R"({"role": "user"})"), "messages[0].content", "missing"},
           {TURNS(R"({"role": "user", "content": 5})"), "messages[0].content", "list of blocks"},
           {TURNS(R"({"role": "system"})"), "messages[0].content", "missing"},
           {TURNS(R"({"role": "system", "output_config": {"effort": "huge"}})"), "messages[0].output_config.effort",
            "\"xhigh\""},
           {BLOCKS("system", R"({"type": "image"})"), "messages[0].content[0].type", "\"tool_removal\""},
           {BLOCKS("system", R"({"type": "tool_removal", "tool": {"type": "tool_definition"}})"),
            "messages[0].content[0].tool.type", "\"tool_reference\""},
           {BLOCKS("system",
                   R"({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": 5}}})"),
            "messages[0].content[0].tool.definition.name", "5"},
           {TURNS(R"({"role": "user", "content": []})"), "messages", "at least one message with a text"},
           {BLOCKS("user", "5"), "messages[0].content[0]", "an object"},
           {BLOCKS("user", "{}"), "messages[0].content[0].type", "missing"},
           {BLOCKS("user", R"({"type": "text"})"), "messages[0].content[0].text", "missing"},
           {BLOCKS("user", R"({"type": "video"})"), "messages[0].content[0].type", "\"tool_result\""},
           {BLOCKS("user", R"({"type": "image", "source": {}})"), "messages[0].content[0].type", "reads no images"},
           {BLOCKS("user", R"({"type": "document", "source": {"type": "base64", "data": "AA=="}})"),
            "messages[0].content[0].source.type", "no other documents"},
           {BLOCKS("assistant", R"({"type": "image"})"), "messages[0].content[0].type", "\"tool_use\""},
           {BLOCKS("assistant", R"({"type": "tool_use", "id": "1", "name": "f", "input": "x"})"),
            "messages[0].content[0].input", "an object"},
           {BLOCKS("assistant", R"({"type": "thinking", "thinking": "", "signature": "tessera1.???"})"),
            "messages[0].content[0].signature", "as it was sent"},
           {BLOCKS("assistant", R"({"type": "tool_use", "id": "1", "name": "f", "input": {}})"), "messages",
            "tool_result"},
           {BLOCKS("user", R"({"type": "tool_result", "tool_use_id": "1", "content": "a"})"),
            "messages[0].content[0].tool_use_id", "before it"},
           {BLOCKS("user", R"({"type": "tool_result", "content": "a"})"), "messages[0].content[0].tool_use_id",
            "missing"},
           {TURNS(R"({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [
                       {"type": "tool_reference", "tool_name": "g"}]}]})"),
            "messages[1].content[0].content[0].tool_name", "one of \"tools\""},
       })
    expect_refused_message(c, model_with_tools());
}

TEST(MessagesErrors, NameTheTool) {
  for (const BadMessage& c : std::initializer_list<BadMessage>{
           {USER R"("tools": [5])", "tools[0]", "an object"},
           {USER R"("tools": [{"input_schema": {}}])", "tools[0].name", "missing"},
           {USER R"("tools": [{"name": "f"}])", "tools[0].input_schema", "missing"},
           {USER R"("tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}])", "tools[1].name",
            "no other tool"},
           {USER R"("tool_choice": {"type": "any"})", "tool_choice.type", "no \"tools\""},
           {USER R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"})",
            "tool_choice.name", "one of \"tools\""},
           {USER R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": "auto")", "tool_choice", "an object"},
           {USER R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "all"})", "tool_choice.type",
            "\"any\""},
       })
    expect_refused_message(c, model_with_tools());
  ServedModel without = test::test_model();
  expect_refused_message({USER R"("tools": [{"name": "f", "input_schema": {}}])", "tools", "--tool-call-parser"},
                         without);
}

TEST(MessagesErrors, NameTheSchemaThatCannotBeKept) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  ServedModel model = model_with_tools();
  const TokenId end = *model.tokenizer->token_to_id("<|im_end|>");
  model.grammars = *GrammarCompiler::create(*model.tokenizer, model.vocab_size, {&end, 1});
#define TWO_TOOLS                                         \
  USER R"("tools": [{"name": "f", "input_schema": {}}, )" \
       R"({"name": "g", "input_schema": {"properties": {"a": {"type": "banana"}}}}], "tool_choice": )"
  for (const BadMessage& c : std::initializer_list<BadMessage>{
           {USER R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "banana"}}})",
            "output_config.format.schema", "field \"output_config.format.schema\": JSON schema: #: "},
           {TWO_TOOLS R"({"type": "any"})", "tool_choice",
            "field \"tool_choice\": the parameters of the tool \"g\": JSON schema: #/properties/a: "},
           {TWO_TOOLS R"({"type": "tool", "name": "g"})", "tool_choice",
            "field \"tool_choice\": the parameters of the tool \"g\": JSON schema: #/properties/a: "},
           {USER R"("tools": [{"name": "f", "input_schema":
                 {"items": {"anyOf": [{"properties": {"parameters": {"type": "banana"}}}]}}}],
                 "tool_choice": {"type": "tool", "name": "f"})",
            "tool_choice", "tool \"f\": JSON schema: #/items/anyOf/0/properties/parameters: "},
       })
    expect_refused_message(c, model);
}

TEST(MessagesErrors, NameTheImage) {
  for (const BadMessage& c : std::initializer_list<BadMessage>{
           {BLOCKS("user", R"({"type": "image"})"), "messages[0].content[0].source", "missing"},
           {BLOCKS("user", R"({"type": "image", "source": {"type": "file", "file_id": "f"}})"),
            "messages[0].content[0].source.type", "\"url\""},
           {BLOCKS("user", R"({"type": "image", "source": {"type": "base64", "data": "?"}})"),
            "messages[0].content[0].source.data", "base64"},
           {BLOCKS("user", R"({"type": "text", "text": "<|image_pad|>"})"), "messages[0].content[0].text",
            "stands for an image"},
       })
    expect_refused_message(c, test::vision_model());
}

TEST(MessagesErrors, ALongPromptIsRefusedInKnownWords) {
  ServedModel model = model_with_tools();
  model.context_length = 4;
  ApiResult<ApiJob> job = prepare_messages(
      model, R"({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "some longer words"}]})");
  ASSERT_FALSE(job.ok());
  EXPECT_THAT(job.error().message, StartsWith("prompt is too long: "));
  EXPECT_THAT(job.error().message, HasSubstr(" tokens > 4 maximum"));
  EXPECT_EQ(job.error().code, "context_length_exceeded");
}

TEST(MessagesErrors, CountingChecksTheSameFields) {
  ApiResult<std::string> counted = count_tokens_body(model_with_tools(), R"({"model": "m", "messages": [5]})");
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.error().param, "messages[0]");
  EXPECT_EQ(count_tokens_body(model_with_tools(), R"({"messages": []})").error().param, "model");
}

}  // namespace
}  // namespace tessera
