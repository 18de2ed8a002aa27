// Catches: a request body that reaches the engine although one of its fields is wrong; an error that does not name the
// wrong field; and hostile input that causes anything but an error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/openai/text_routes.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using test::test_model;
using ::testing::HasSubstr;

struct BadRequest {
  std::string body;
  std::string param;
  std::string message;  // part of the error's message
  int status = 400;
};

template <class Prepare>
void expect_errors(const Prepare& prepare, const std::vector<BadRequest>& cases) {
  const ServedModel model = test_model();
  for (const BadRequest& bad : cases) {
    SCOPED_TRACE(bad.body.substr(0, 200));
    const auto result = prepare(model, bad.body);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().http_status, bad.status);
    EXPECT_EQ(result.error().param, bad.param);
    EXPECT_THAT(result.error().message, HasSubstr(bad.message));
    EXPECT_EQ(result.error().type, "invalid_request_error");
    EXPECT_TRUE(Json::parse(result.error().to_json(), "error").ok());
  }
}

// Makes a completion request with one wrong field.
BadRequest field(const std::string& key, const std::string& value, const std::string& message) {
  return {fmt::format(R"({{"prompt": "a", "{}": {}}})", key, value), key, message};
}

std::string repeated(const std::string& part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

TEST(BadRequest, RefusesBodiesThatAreNoJsonObject) {
  const std::vector<BadRequest> cases = {
      {"", "", "not valid JSON"},
      {"{", "", "not valid JSON"},
      {"[]", "", "accepted: a JSON object"},
      {"null", "", "accepted: a JSON object"},
      {"{\"prompt\": \"\xff\"}", "", "not valid JSON"},
      {"{\"prompt\": NaN}", "", "not valid JSON"},
      {R"({"prompt": "a", "temperature": 1e999})", "", "not valid JSON"},
      {R"({"prompt": "a", "prompt": "b"})", "", "appears twice"},
      {R"({"prompt": "a", "x": )" + repeated("[", 100000), "", "nested deeper"},
      {R"({"prompt": "a"} x)", "", "not valid JSON"},
  };
  expect_errors(prepare_completion, cases);
  expect_errors(prepare_chat, cases);
  expect_errors(prepare_generate, cases);
  expect_errors(tokenize_body, cases);
  expect_errors(detokenize_body, cases);
}

TEST(BadRequest, NamesTheWrongSamplingFieldAndValue) {
  expect_errors(
      prepare_completion,
      {
          field("temperature", "-1", "is -1; accepted: a number in [0, 100]"),
          field("temperature", "\"hot\"", "is \"hot\"; accepted: a number"),
          field("top_p", "0", "a number in (0, 1]"),
          field("top_p", "1.5", "a number in [0, 1]"),
          field("top_k", "-2", "an integer in [-1, "),
          field("top_k", "2.5", "an integer"),
          field("top_k", "99999999999999999999", "an integer"),
          field("min_p", "2", "[0, 1]"),
          field("repetition_penalty", "0", "(0, 10]"),
          field("frequency_penalty", "-3", "[-2, 2]"),
          field("presence_penalty", "[]", "[-2, 2]"),
          field("seed", "1.5", "an integer"),
          field("n", "0", "[1, 128]"),
          field("n", "1000000000", "[1, 128]"),
          field("n", "true", "[1, 128]"),
          field("best_of", "3", "accepted: the value of \"n\""),
          field("max_tokens", "-1", "[0, "),
          field("max_completion_tokens", "\"5\"", "[0, "),
          field("min_tokens", "-1", "[0, "),
          field("stop", "3", "a string or a list of strings"),
          field("stop", "[\"a\", null]", "a string or a list of strings"),
          field("stop", "\"\"", "not empty"),
          field("stop", "[" + repeated("\"x\",", 40) + "\"x\"]", "at most 32"),
          field("stop_token_ids", "[2048]", "a token id in [0, 2047]"),
          field("stop_token_ids", "[-1]", "a token id in [0, 2047]"),
          field("ignore_eos", "1", "true or false"),
          field("skip_special_tokens", "\"no\"", "true or false"),
          field("logit_bias", "[]", "an object"),
          field("logit_bias", R"({"x": 1})", "token ids in [0, 2047]"),
          field("logit_bias", R"({"2048": 1})", "\"2048\": 1"),
          field("logit_bias", R"({"-1": 1})", "\"-1\": 1"),
          field("logit_bias", R"({"5 ": 1})", "\"5 \": 1"),
          field("logit_bias", R"({"5": 101})", "a number in [-100, 100]"),
          field("logit_bias", R"({"5": null})", "a number in [-100, 100]"),
          field("priority", "0.5", "an integer"),
          field("timeout_s", "-1", "[0, "),
          field("return_graph_info", "1", "true or false"),
          field("use_beam_search", "true", "accepted: false"),
          field("stop_regex", "\"a\"", "accepted: none"),
          field("regex", "5", "a string"),
          field("json_schema", "5", "a JSON schema"),
          field("json_schema", "\"{\"", "not valid JSON"),
          field("bad_words", "5", "a string or a list of strings"),
          field("bad_words", "[\" \"]", "not blank"),
          field("bad_words", "\"" + repeated("a b ", 100) + "\"", "at most 64 tokens"),
          field("allowed_token_ids", "[]", "at least one token id"),
          field("allowed_token_ids", "[2048]", "a token id in [0, 2047]"),
          field("truncate_prompt_tokens", "0", "-1 or 1 to 256"),
          field("truncate_prompt_tokens", "257", "[-1, 256]"),
          field("truncation_side", "\"middle\"", "\"left\" or \"right\""),
          field("prompt_logprobs", "21", "[0, 20]"),
          field("return_hidden_states", "\"first\"", "true, false or \"last\""),
          field("request_id", "\"\"", "1 to 256 bytes"),
          {R"({"prompt": "a", "request_id": "b", "rid": "c"})", "rid", "beside \"request_id\""},
          {R"({"prompt": "a", "stream": true, "prompt_logprobs": 1})", "prompt_logprobs", "where \"stream\" is true"},
          {R"({"prompt": "a", "stream": true, "return_hidden_states": true})", "return_hidden_states", "\"stream\""},
          {R"({"prompt": "a", "echo": true, "logprobs": 2, "prompt_logprobs": 1})", "prompt_logprobs", "\"logprobs\""},
          {R"({"prompt": "a", "allowed_token_ids": [5], "regex": "a"})", "regex", "both constrain the output"},
          field("guided_choice", "[]", "none of them empty"),
          field("guided_choice", "[\"\"]", "none of them empty"),
          field("structured_outputs", "{}", "one of json, regex"),
          field("structured_outputs", R"({"json_object": false})", "one of json, regex"),
          {R"({"prompt": "a", "structured_outputs": {"regex": "a", "choice": ["a"]}})", "structured_outputs.choice",
           "both constrain the output"},
          {R"({"prompt": "a", "regex": "a", "structured_outputs": {"grammar": "root ::= \"a\""}})",
           "structured_outputs.grammar", "both constrain the output"},
          field("guided_json", "[1]", "a JSON schema"),
          {R"({"prompt": "a", "regex": "a", "ebnf": "root ::= \"a\""})", "ebnf", "both constrain the output"},
          {R"({"prompt": "a", "min_tokens": 5, "max_tokens": 4})", "min_tokens", "at most the greatest number"},
          {R"({"prompt": "a", "max_tokens": 5, "max_completion_tokens": 6})", "max_tokens",
           "\"max_tokens\" is 5 and \"max_completion_tokens\" is 6; accepted: one of them, or the same value"},
          {R"({"prompt": "a", "max_tokens": 0, "max_new_tokens": 1})", "max_new_tokens", "\"max_tokens\" is 0"},
          {R"({"prompt": "a", "min_tokens": 1, "min_new_tokens": 2})", "min_new_tokens", "\"min_tokens\" is 1"},
          {R"({"prompt": "a", "seed": 1, "sampling_seed": 2})", "sampling_seed", "\"seed\" is 1"},
          {R"({"prompt": "a", "include_stop_str_in_output": false, "no_stop_trim": true})", "no_stop_trim",
           "\"include_stop_str_in_output\" is false"},
          {R"({"prompt": "a", "bad_words": [)" + repeated("\"b\",", 1024) + "\"b\"]}", "bad_words", "at most 1024"},
      });
}

TEST(BadRequest, RefusesWrongResponseFormats) {
  const auto format = [](const std::string& value, const std::string& param, const std::string& message) {
    return BadRequest{R"({"prompt": "a", "response_format": )" + value + "}", param, message};
  };
  expect_errors(prepare_completion,
                {
                    format("\"json\"", "response_format", "an object"),
                    format("{}", "response_format.type", "missing"),
                    format(R"({"type": "xml"})", "response_format.type", "\"json_schema\""),
                    format(R"({"type": "json_schema"})", "response_format.json_schema", "an object"),
                    format(R"({"type": "json_schema", "json_schema": {}})", "response_format.json_schema.schema",
                           "a JSON schema"),
                    format(R"({"type": "json_object"})", "response_format", "cannot constrain its output"),
                });
}

TEST(BadRequest, RefusesWrongCompletionPrompts) {
  expect_errors(prepare_completion,
                {
                    {"{}", "prompt", "missing; accepted: a string"},
                    {R"({"prompt": null})", "prompt", "is null; accepted: a string"},
                    {R"({"prompt": {}})", "prompt", "accepted: a string"},
                    {R"({"prompt": []})", "prompt", "not empty"},
                    {R"({"prompt": [[]]})", "prompt", "no tokens"},
                    {R"({"prompt": ""})", "prompt", "no tokens"},
                    {R"({"prompt": [1, "a"]})", "prompt", "has the id \"a\""},
                    {R"({"prompt": ["a", 1]})", "prompt", "accepted: a string"},
                    {R"({"prompt": [2048]})", "prompt", "has the id 2048; accepted: integers in [0, 2047]"},
                    {R"({"prompt": [-1]})", "prompt", "has the id -1"},
                    {R"({"prompt": [1.5]})", "prompt", "has the id 1.5"},
                    {R"({"prompt": [[1], [4294967296]]})", "prompt", "has the id 4294967296"},
                    {R"({"prompt": [[[1]]]})", "prompt", "has the id [1]"},
                    {R"({"prompt": [)" + repeated("\"a\",", 99) + R"("a"], "n": 128})", "prompt", "1152 texts"},
                    {R"({"prompt": [)" + repeated("\"a\",", 1024) + R"("a"]})", "prompt", "has 1025 prompts"},
                    field("suffix", "\"b\"", "accepted: \"\""),
                    field("echo", "\"yes\"", "true or false"),
                    field("logprobs", "21", "[0, 20]"),
                    field("logprobs", "true", "[0, 20]"),
                    field("stream", "\"yes\"", "true or false"),
                    field("stream_options", "{}", "none where \"stream\" is not true"),
                    {R"({"prompt": "a", "stream": true, "echo": true, "logprobs": 1})", "logprobs", "\"echo\""},
                    {R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": 1}})",
                     "stream_options.include_usage", "true or false"},
                    {R"({"prompt": "a", "model": 5})", "model", "a string"},
                    {R"({"prompt": "a", "model": "gpt-9"})", "model", "\"gpt-9\" does not exist", 404},
                });
}

TEST(BadRequest, PromptsLongerThanTheContextHaveTheirErrorCode) {
  const ServedModel model = test_model();
  const std::string ids = repeated("1,", 255) + "1";
  for (const std::string& body :
       {"{\"prompt\": [" + ids + "]}", std::string(R"({"prompt": [1, 2], "max_tokens": 255})"),
        std::string(R"({"prompt": [1], "max_tokens": 2147483647})")}) {
    ApiResult<ApiJob> job = prepare_completion(model, body);
    ASSERT_FALSE(job.ok()) << body;
    EXPECT_EQ(job.error().code, "context_length_exceeded");
    EXPECT_EQ(job.error().http_status, 400);
    EXPECT_THAT(job.error().message, HasSubstr("maximum context length is 256 tokens"));
  }
  EXPECT_TRUE(prepare_completion(model, R"({"prompt": [1, 2], "max_tokens": 254})").ok());
}

// Checks that the error message has the words that litellm, LangChain and others look for, and the token counts from
// which they compute how far to shorten a request.
TEST(BadRequest, AnOverflowHasTheWordsThatClientsKnow) {
  const ServedModel model = test_model();
  EXPECT_EQ(
      prepare_completion(model, R"({"prompt": [1, 2], "max_tokens": 255})").error().message,
      "This model's maximum context length is 256 tokens. However, you requested 257 tokens (2 in the prompt, 255 in "
      "the completion). Please reduce the length of the prompt or completion.");
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 256})";
  EXPECT_THAT(
      prepare_chat(model, chat).error().message,
      ::testing::MatchesRegex("This model's maximum context length is 256 tokens\\. However, you requested [0-9]+ "
                              "tokens \\([0-9]+ in the messages, 256 in the completion\\)\\. Please reduce the "
                              "length of the messages or completion\\."));
}

BadRequest message(const std::string& text, const std::string& param, const std::string& part) {
  return {R"({"messages": [{"role": "user", "content": "a"}, )" + text + "]}", param, part};
}
BadRequest chat_field(const std::string& members, const std::string& param, const std::string& part) {
  return {R"({"messages": [{"role": "user", "content": "a"}], )" + members + "}", param, part};
}

TEST(BadRequest, RefusesWrongChatMessages) {
  expect_errors(
      prepare_chat,
      {
          {"{}", "messages", "missing; accepted: a list"},
          {R"({"messages": []})", "messages", "at least one message"},
          {R"({"messages": "hello"})", "messages", "a list"},
          message("5", "messages[1]", "accepted: an object"),
          message("{}", "messages[1].role", "missing; accepted: \"system\""),
          message(R"({"role": "wizard", "content": "a"})", "messages[1].role", "is \"wizard\""),
          message(R"({"role": ["user"], "content": "a"})", "messages[1].role", "a string"),
          message(R"({"role": "user"})", "messages[1].content", "missing; accepted: a string or a list"),
          message(R"({"role": "user", "content": 5})", "messages[1].content", "is 5"),
          message(R"({"role": "assistant"})", "messages[1].content", "missing"),
          message(R"({"role": "user", "content": ["a"]})", "messages[1].content", "messages[1].content[0]"),
          message(R"({"role": "user", "content": [{"type": "image_url"}]})", "messages[1].content[0].type",
                  "is \"image_url\"; accepted: \"text\""),
          message(R"({"role": "user", "content": [{"type": "text"}]})", "messages[1].content[0].text", "a string"),
          message(R"({"role": "user", "content": "a", "name": 1})", "messages[1].name", "a string"),
          message(R"({"role": "assistant", "content": "a", "function_call": {"name": "f"}})",
                  "messages[1].function_call", "\"tool_calls\""),
          message(R"({"role": "assistant", "content": "a", "audio": {"id": "a"}})", "messages[1].audio", "none"),
          message(R"({"role": "assistant", "tool_calls": 1})", "messages[1].tool_calls", "a list"),
          message(R"({"role": "assistant", "tool_calls": [1]})", "messages[1].tool_calls[0]", "an object"),
          message(R"({"role": "assistant", "tool_calls": [{"type": "magic"}]})", "messages[1].tool_calls[0].type",
                  "accepted: \"function\""),
          message(R"({"role": "assistant", "tool_calls": [{"function": {}}]})",
                  "messages[1].tool_calls[0].function.name", "a string"),
          message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": []}}]})",
                  "messages[1].tool_calls[0].function.arguments", "text of an object"),
          message(R"({"role": "tool", "tool_call_id": "1", "content": "a"})", "messages[1].role",
                  "is \"tool\"; accepted: \"tool\" only after a message with \"tool_calls\""),
      });
}

TEST(BadRequest, RefusesWrongChatFields) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}], )";
  expect_errors(
      prepare_chat,
      {
          chat_field(R"("logprobs": 1)", "logprobs", "true or false"),
          chat_field(R"("top_logprobs": 3)", "top_logprobs", "0 where \"logprobs\" is not true"),
          chat_field(R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "[0, 20]"),
          chat_field(R"("chat_template_kwargs": [])", "chat_template_kwargs", "an object"),
          chat_field(R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs", "without \"messages\""),
          chat_field(R"("enable_thinking": "no")", "enable_thinking", "true or false"),
          chat_field(R"("reasoning_effort": "low")", "reasoning_effort", "the chat template does not name it"),
          chat_field(R"("reasoning": {"effort": "huge"})", "reasoning.effort", "\"xhigh\""),
          chat_field(R"("reasoning": {"summary": "long"})", "reasoning.summary", "\"concise\""),
          chat_field(R"("reasoning": "low")", "reasoning", "an object"),
          chat_field(R"("reasoning": {"effort": "low"}, "reasoning_effort": "high",
                        "chat_template": "{{ reasoning_effort }}")",
                     "reasoning.effort", "accepted: the value of \"reasoning_effort\", \"high\""),
          chat_field(R"("documents": [{"text": "a"}])", "documents", "the chat template does not name it"),
          chat_field(R"("enable_thinking": true, "chat_template_kwargs": {"enable_thinking": false})",
                     "enable_thinking", "is true; accepted: the value in \"chat_template_kwargs\", false"),
          chat_field(R"("chat_template_kwargs": {"thinking": true})", "chat_template_kwargs.thinking", "does not name"),
          chat_field(R"("chat_template": "{% for %}")", "chat_template", "chat_template: line 1"),
          chat_field(R"("chat_template": "{{ raise_exception('never') }}")", "chat_template", "never"),
          chat_field(R"("continue_final_message": true)", "continue_final_message", "not the assistant's"),
          chat_field(R"("echo": true)", "echo", "not the assistant's"),
          chat_field(R"("input_ids": [[1], [2]])", "input_ids", "a list of token ids"),
          chat_field(R"("input_ids": "a")", "input_ids", "a list of token ids"),
          chat_field(R"("input_ids": [1], "chat_template": "a")", "chat_template", "beside \"input_ids\""),
          chat_field(R"("stream": true, "return_token_ids": true)", "return_token_ids", "\"stream\" is true"),
          {R"({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true,
              "add_generation_prompt": true})",
           "add_generation_prompt", "false where \"continue_final_message\""},
          {R"({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true,
              "chat_template": "{{ messages[0].role }}"})",
           "continue_final_message", "does not print the text"},
          chat_field(R"("functions": [{"name": "f"}])", "functions", "\"tools\""),
          chat_field(R"("tools": {})", "tools", "a list"),
          chat_field(R"("tools": [1])", "tools[0]", "an object"),
          chat_field(R"("tools": [{"type": "retrieval"}])", "tools[0].type", "accepted: \"function\""),
          chat_field(R"("tools": [{"type": "function"}])", "tools[0].function", "an object"),
          chat_field(R"("tools": [{"type": "function", "function": {"name": ""}}])", "tools[0].function.name",
                     "1 to 256"),
          chat_field(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}])",
                     "tools[0].function.parameters", "an object"),
          chat_field(R"("tool_choice": "required")", "tool_choice", "no \"tools\""),
          chat_field(R"("tool_choice": "maybe")", "tool_choice", "\"auto\""),
          chat_field(tools + R"("tool_choice": {"type": "function", "function": {"name": "g"}})",
                     "tool_choice.function.name", "one of \"tools\""),
          chat_field(tools + R"("tool_choice": {"type": "function"})", "tool_choice.function", "an object"),
          chat_field(tools + R"("tool_choice": "required")", "tool_choice", "cannot constrain its output"),
          chat_field(tools + R"("tool_choice": "auto")", "tools", "--tool-call-parser"),
          chat_field(tools + R"("tool_choice": "required", "regex": "a")", "regex", "constrains the output already"),
          chat_field(tools + R"("parallel_tool_calls": 1)", "parallel_tool_calls", "true or false"),
          chat_field(R"("max_tokens": 100000)", "messages", "maximum context length is 256 tokens"),
      });
}

TEST(BadRequest, RefusesWrongGenerateInputs) {
  const auto with = [](const std::string& members, const std::string& param, const std::string& part) {
    return BadRequest{R"({"text": "a", )" + members + "}", param, part};
  };
  expect_errors(
      prepare_generate,
      {
          {"{}", "text", "has 0 of"},
          {R"({"text": "a", "input_ids": [1]})", "input_ids", "has 2 of"},
          {R"({"input_ids": []})", "input_ids", "not empty"},
          {R"({"input_ids": [5000]})", "input_ids", "has the id 5000"},
          {R"({"input_embeds": []})", "input_embeds", "no tokens"},
          {R"({"input_embeds": 5})", "input_embeds", "rows of 4 numbers"},
          {R"({"input_embeds": [[1, 2, 3]]})", "input_embeds", "rows of 4 numbers"},
          {R"({"input_embeds": [[1, 2, 3, "x"]]})", "input_embeds", "rows of 4 numbers"},
          {R"({"input_embeds": [[1, 2, 3, 1e300]]})", "input_embeds", "rows of 4 numbers"},
          {R"({"input_embeds": [[[1, 2, 3, 4]], 5]})", "input_embeds", "rows of 4 numbers"},
          {R"({"input_embeds": [[1, 2, 3, 4]], "sampling_params": {"n": 2}})", "sampling_params.n", "accepted with"},
          with(R"("sampling_params": [])", "sampling_params", "an object"),
          with(R"("sampling_params": {"temperature": -1})", "sampling_params.temperature", "[0, 100]"),
          with(R"("sampling_params": {"max_new_tokens": 256})", "text", "maximum context length is 256 tokens"),
          with(R"("sampling_params": {"regex": 5})", "sampling_params.regex", "a string"),
          with(R"("return_logprob": 1)", "return_logprob", "true or false"),
          with(R"("logprob_start_len": 1000)", "logprob_start_len", "[-1, "),
          with(R"("top_logprobs_num": 21)", "top_logprobs_num", "[0, 20]"),
          with(R"("rid": 5)", "rid", "a string"),
          with(R"("stream": 1)", "stream", "true or false"),
          with(R"("priority": "high")", "priority", "an integer"),
          {R"({"text": ["a", "b"], "rid": ["x"]})", "rid", "a string"},
      });
}

TEST(BadRequest, TextRoutesRefuseWrongFields) {
  expect_errors(tokenize_body,
                {{"{}", "prompt", "a string"},
                 {R"({"prompt": 5})", "prompt", "a string"},
                 {R"({"prompt": "a", "add_special_tokens": 1})", "add_special_tokens", "true or false"}});
  expect_errors(detokenize_body, {{"{}", "tokens", "a list"},
                                  {R"({"tokens": 5})", "tokens", "a list"},
                                  {R"({"tokens": [5000]})", "tokens", "[0, 2047]"},
                                  {R"({"tokens": ["a"]})", "tokens", "[0, 2047]"}});
}

TEST(BadRequest, WithoutATokenizerOnlyIdsAreServed) {
  ServedModel model = test_model();
  model.tokenizer = nullptr;
  for (const char* body : {R"({"prompt": "a"})", R"({"prompt": [1], "stop": "a"})"}) {
    EXPECT_EQ(prepare_completion(model, body).error().http_status, 400) << body;
  }
  EXPECT_TRUE(prepare_completion(model, R"({"prompt": [1]})").ok());
  EXPECT_EQ(tokenize_body(model, R"({"prompt": "a"})").error().param, "prompt");
}

TEST(BadRequest, ATemplatesRefusalIsAnErrorOfTheMessages) {
  ServedModel model = test_model();
  model.chat = *ChatTemplate::parse("{{ raise_exception('no such talk') }}");
  const ApiResult<ApiJob> job = prepare_chat(model, R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(job.error().param, "messages");
  EXPECT_THAT(job.error().message, HasSubstr("no such talk"));
}

}  // namespace
}  // namespace tessera
