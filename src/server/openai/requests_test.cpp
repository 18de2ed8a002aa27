// Catches: fields that are read but do not reach the engine's request; a default that is used although another default
// should take precedence; and prompts that are not rendered from the messages sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/engine/schema/compile.h"
#include "tessera/server/openai/chat_messages.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/openai/text_routes.h"
#include "tessera/server/test_model.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {
namespace {

using test::test_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

template <class Prepare>
ApiJob prepared(const Prepare& prepare, const std::string& body, const ServedModel& model = test_model()) {
  ApiResult<ApiJob> job = prepare(model, body);
  EXPECT_TRUE(job.ok()) << body << "\n" << job.error().message;
  return job.ok() ? *std::move(job) : ApiJob{.requests = std::vector<Request>(1)};
}

std::string prompt_text(const Request& request) { return test::demo_tokenizer().decode(request.prompt, false); }

std::string chat_prompt(const std::string& members) {
  return prompt_text(prepared(prepare_chat, "{" + members + "}").requests[0]);
}

TEST(Requests, SamplingFieldsReachTheEngine) {
  const ApiJob job = prepared(prepare_completion, R"({"prompt": [5, 6], "temperature": 0.5, "top_k": 7, "top_p": 0.25,
      "min_p": 0.125, "repetition_penalty": 1.5, "frequency_penalty": -1, "presence_penalty": 2, "seed": -3,
      "logit_bias": {"5": -100, "6": 1.5}, "max_tokens": 9, "min_tokens": 2, "stop": ["x", "y"],
      "stop_token_ids": [4], "ignore_eos": true, "include_stop_str_in_output": true, "skip_special_tokens": false,
      "priority": -4, "timeout_s": 2.5, "logprobs": 3, "n": 2, "best_of": 2, "user": "me"})");
  ASSERT_THAT(job.requests, SizeIs(2));
  const Request& request = job.requests[1];
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.sampling.min_p, 0.125);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_EQ(request.sampling.presence_penalty, 2);
  EXPECT_EQ(request.sampling.seed, -3);
  EXPECT_EQ(request.sampling.choice, 1);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(std::pair(TokenId(5), -100.f), std::pair(TokenId(6), 1.5f)));
  EXPECT_EQ(request.stop.max_new_tokens, 9);
  EXPECT_EQ(request.stop.min_new_tokens, 2);
  EXPECT_THAT(request.stop.texts, ElementsAre("x", "y"));
  EXPECT_THAT(request.stop.ids, ElementsAre(TokenId(4)));
  EXPECT_TRUE(request.stop.ignore_eos);
  EXPECT_TRUE(request.stop.keep_matched);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_EQ(request.priority, -4);
  EXPECT_EQ(request.timeout_s, 2.5);
  EXPECT_EQ(request.logprobs.output, 3);
  EXPECT_FALSE(request.logprobs.prompt.has_value());
  EXPECT_FALSE(job.stream);
}

TEST(Requests, DefaultsComeFromTheModelThenFromOpenAi) {
  ServedModel model = test_model();
  const SamplingParams plain = prepared(prepare_completion, R"({"prompt": [5]})", model).requests[0].sampling;
  EXPECT_EQ(plain.temperature, 1);
  EXPECT_EQ(plain.top_k, 0);
  EXPECT_EQ(plain.top_p, 1);
  model.generation.temperature = 0.75;
  model.generation.top_k = 20;
  model.generation.top_p = 0.5;
  model.generation.min_p = 0.25;
  model.generation.repetition_penalty = 1.25;
  const SamplingParams own = prepared(prepare_completion, R"({"prompt": [5]})", model).requests[0].sampling;
  EXPECT_EQ(own.temperature, 0.75);
  EXPECT_EQ(own.top_k, 20);
  EXPECT_EQ(own.top_p, 0.5);
  EXPECT_EQ(own.min_p, 0.25);
  EXPECT_EQ(own.repetition_penalty, 1.25);
  const SamplingParams given =
      prepared(prepare_completion, R"({"prompt": [5], "temperature": 2, "top_k": -1})", model).requests[0].sampling;
  EXPECT_EQ(given.temperature, 2);
  EXPECT_EQ(given.top_k, 0);
  model.generation.do_sample = false;
  EXPECT_EQ(prepared(prepare_completion, R"({"prompt": [5]})", model).requests[0].sampling.temperature, 0);
}

TEST(Requests, GraphInfoIsReturnedIfAskedFor) {
  EXPECT_FALSE(prepared(prepare_completion, R"({"prompt": [5]})").requests[0].return_graph_info);
  EXPECT_TRUE(
      prepared(prepare_completion, R"({"prompt": [5], "return_graph_info": true})").requests[0].return_graph_info);
  EXPECT_TRUE(
      prepared(prepare_generate, R"({"input_ids": [5], "return_graph_info": true})").requests[0].return_graph_info);
  const ApiJob chat =
      prepared(prepare_chat, R"({"messages": [{"role": "user", "content": "a"}], "n": 2, "return_graph_info": true})");
  ASSERT_THAT(chat.requests, SizeIs(2));
  EXPECT_TRUE(chat.requests[1].return_graph_info);
}

TEST(Requests, ChoicesShareASeedAndRequestsDoNot) {
  const ApiJob first = prepared(prepare_completion, R"({"prompt": [[5], [6]], "n": 2})");
  const ApiJob second = prepared(prepare_completion, R"({"prompt": [5]})");
  ASSERT_THAT(first.requests, SizeIs(4));
  ASSERT_TRUE(first.requests[0].sampling.seed.has_value());
  EXPECT_EQ(first.requests[0].sampling.seed, first.requests[1].sampling.seed);
  EXPECT_EQ(first.requests[1].sampling.choice, 1);
  EXPECT_THAT(first.requests[2].prompt, ElementsAre(TokenId(6)));
  EXPECT_EQ(first.requests[2].sampling.choice, 0);
  EXPECT_NE(first.requests[0].sampling.seed, second.requests[0].sampling.seed);
}

TEST(Requests, HasTheDefaultLengthOfEachRoute) {
  EXPECT_EQ(prepared(prepare_completion, R"({"prompt": [5]})").requests[0].stop.max_new_tokens, 16);
  EXPECT_EQ(prepared(prepare_generate, R"({"input_ids": [5]})").requests[0].stop.max_new_tokens, 128);
  const Request chat = prepared(prepare_chat, R"({"messages": [{"role": "user", "content": "a"}]})").requests[0];
  EXPECT_EQ(chat.stop.max_new_tokens, 256 - std::ssize(chat.prompt));
}

TEST(Requests, CompletionPromptsMayHaveEveryForm) {
  EXPECT_EQ(prompt_text(prepared(prepare_completion, R"({"prompt": "Once"})").requests[0]), "Once");
  EXPECT_THAT(prepared(prepare_completion, R"({"prompt": [5, 6]})").requests[0].prompt,
              ElementsAre(TokenId(5), TokenId(6)));
  const ApiJob texts = prepared(prepare_completion, R"({"prompt": ["Once", "upon"]})");
  ASSERT_THAT(texts.requests, SizeIs(2));
  EXPECT_EQ(prompt_text(texts.requests[1]), "upon");
  const ApiJob lists = prepared(prepare_completion, R"({"prompt": [[5], [6, 7]]})");
  ASSERT_THAT(lists.requests, SizeIs(2));
  EXPECT_THAT(lists.requests[1].prompt, ElementsAre(TokenId(6), TokenId(7)));
  EXPECT_TRUE(prepared(prepare_completion, R"({"prompt": "a", "suffix": "", "response_format": {"type": "text"},
      "model": "demo", "stop": null, "max_tokens": 0, "echo": true, "logprobs": 0})")
                  .requests[0]
                  .logprobs.prompt.has_value());
}

TEST(Requests, ChatPromptsAreRenderedByTheTemplate) {
  EXPECT_EQ(chat_prompt(R"("messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"),
            "system:s;user:u;assistant:");
  EXPECT_EQ(chat_prompt(R"("messages": [{"role": "developer", "content": "s"}, {"role": "user",
            "content": [{"type": "text", "text": "u"}, {"type": "text", "text": "v"}]}])"),
            "system:s;user:u\nv;assistant:");
  EXPECT_EQ(chat_prompt(R"("messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1",
            "type": "function", "function": {"name": "f", "arguments": "{\"x\": 3}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "4"}])"),
            "assistant:;f(3);tool:4;assistant:");
  EXPECT_EQ(chat_prompt(R"("messages": [{"role": "user", "content": "u"}], "enable_thinking": false)"),
            "user:u;assistant:<think></think>");
  EXPECT_EQ(chat_prompt(R"("messages": [{"role": "user", "content": "u"}], "add_generation_prompt": false,
            "chat_template_kwargs": {"enable_thinking": false})"),
            "user:u;<think></think>");
}

TEST(Requests, BrokenArgumentsReachTheTemplateAsText) {
  const auto shown = [](const char* chat_template) {
    ServedModel model = test_model();
    model.chat = *ChatTemplate::parse(std::string("{% for m in messages %}{% for c in m.tool_calls %}") +
                                      chat_template + "{% endfor %}{% endfor %}");
    return prompt_text(prepared(prepare_chat, R"({"messages": [{"role": "user", "content": "u"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{\"city\": \"Os"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Error"}]})",
                                model)
                           .requests[0]);
  };
  EXPECT_EQ(shown("{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"),
            R"({"city": "Os)");
  EXPECT_EQ(shown("{{ c.function.arguments | tojson }}"), R"("{\"city\": \"Os")");
  EXPECT_EQ(shown("{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}"),
            R"(arguments={"city": "Os)")
      << "the template fails with a text";
}

TEST(Requests, ToolsAreRenderedUnlessToolChoiceIsNone) {
  ServedModel model = test_model();
  model.tool_call_parser = "qwen";
  const std::string with_tools = R"({"messages": [{"role": "user", "content": "u"}], "tools": [{"type": "function",
      "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": )";
  EXPECT_EQ(prompt_text(prepared(prepare_chat, with_tools + "\"auto\"}", model).requests[0]),
            "<tools>user:u;assistant:");
  EXPECT_EQ(prompt_text(prepared(prepare_chat, with_tools + "\"none\"}", model).requests[0]), "user:u;assistant:");
  // The tools are refused, because the request's own template would not show them.
  const ApiResult<ApiJob> hidden =
      prepare_chat(model, with_tools + R"("auto", "chat_template": "{{ messages[0].content }}"})");
  ASSERT_FALSE(hidden.ok());
  EXPECT_EQ(hidden.error().param, "tools");
  EXPECT_THAT(hidden.error().message, HasSubstr("the request's \"chat_template\" does not name them"));
  EXPECT_EQ(
      prompt_text(prepared(prepare_chat, with_tools + R"("auto", "chat_template": "{{ tools | length }}"})", model)
                      .requests[0]),
      "1");
}

TEST(Requests, SpecialTokensStayIfAParserReadsThem) {
  ServedModel model = test_model();
  model.tool_call_parser = "gpt-oss";
  model.reasoning_parser = "gpt-oss";
  const auto skips = [&](const std::string& more) {
    const std::string body = R"({"messages": [{"role": "user", "content": "u"}])" + more + "}";
    return prepared(prepare_chat, body, model).requests[0].skip_special_tokens;
  };
  EXPECT_FALSE(skips(""));
  EXPECT_FALSE(skips(R"(, "skip_special_tokens": true)"));
  EXPECT_TRUE(skips(R"(, "separate_reasoning": false)"));
  EXPECT_FALSE(skips(R"(, "separate_reasoning": false, "skip_special_tokens": false)"));
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": )";
  EXPECT_FALSE(skips(tools + R"("auto", "separate_reasoning": false)"));
  model.reasoning_parser = "qwen3";
  EXPECT_TRUE(skips(""));
  EXPECT_FALSE(skips(tools + R"("auto")"));
}

TEST(Requests, RequiredCallsBecomeASchema) {
  const Json body = *Json::parse(R"({"tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "$defs": {"a": {"type": "null"}}}}},
      {"type": "function", "function": {"name": "g"}}], "tool_choice": "required", "parallel_tool_calls": false})",
                                 "body");
  ApiResult<ToolFields> tools = read_tools(ApiFields(body));
  ASSERT_TRUE(tools.ok());
  ApiResult<std::optional<OutputGrammar>> grammar = tool_grammar(*tools);
  ASSERT_TRUE(grammar.ok() && grammar->has_value());
  const Json schema = *Json::parse((*grammar)->spec.text, "schema");
  EXPECT_EQ(schema.find("maxItems")->as_int(), 1);
  const Json::Array& calls = schema.find("items")->find("anyOf")->as_array();
  ASSERT_THAT(calls, SizeIs(2));
  EXPECT_EQ(calls[1].find("properties")->find("name")->find("const")->as_string(), "g");

  tools->choice = ToolChoice::kNamed;
  tools->named = "g";
  EXPECT_EQ((**tool_grammar(*tools)).spec.text, R"({"type": "object"})");
}

// Two tools may have different definitions under the same name.
TEST(Requests, ReferencesOfRequiredCallsStayWithinTheirTool) {
  const Json body = *Json::parse(R"({"tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/definitions/a",
          "definitions": {"a": {"const": "of f"}}}}},
      {"type": "function", "function": {"name": "g", "parameters": {"$ref": "#/definitions/a",
          "definitions": {"a": {"const": "of g"}}}}}], "tool_choice": "required"})",
                                 "body");
  ApiResult<ToolFields> tools = read_tools(ApiFields(body));
  ASSERT_TRUE(tools.ok());
  const Result<std::string> ebnf = schema::compile_schema((**tool_grammar(*tools)).spec.text, "");
  ASSERT_TRUE(ebnf.ok()) << ebnf.status().to_string();
  EXPECT_THAT(*ebnf, HasSubstr("of f"));
  EXPECT_THAT(*ebnf, HasSubstr("of g"));
}

// Old drafts of JSON Schema write an anchor as "$id", and two tools may have the same "$id".
TEST(Requests, ToolsMayHaveIdsOfTheirOwn) {
  const Json body = *Json::parse(R"({"tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"$id": "#args", "$ref": "#/definitions/a",
          "definitions": {"a": {"const": "of f"}}}}},
      {"type": "function", "function": {"name": "g", "parameters": {"$id": "args", "$ref": "#/definitions/a",
          "definitions": {"a": {"$id": "shared", "const": "of g"}}}}},
      {"type": "function", "function": {"name": "h", "parameters": {"$id": "args", "$ref": "shared",
          "definitions": {"a": {"$id": "shared", "const": "of h"}}}}}], "tool_choice": "required"})",
                                 "body");
  ApiResult<ToolFields> tools = read_tools(ApiFields(body));
  ASSERT_TRUE(tools.ok());
  const Result<std::string> ebnf = schema::compile_schema((**tool_grammar(*tools)).spec.text, "");
  ASSERT_TRUE(ebnf.ok()) << ebnf.status().to_string();
  for (const char* value : {"of f", "of g", "of h"}) EXPECT_THAT(*ebnf, HasSubstr(value));
}

TEST(Requests, SeveralNamesOfOneFieldMayAgree) {
  const ApiJob job = prepared(prepare_completion, R"({"prompt": [5], "max_tokens": 3, "max_completion_tokens": 3,
      "max_new_tokens": 3, "min_tokens": 1, "min_new_tokens": 1, "seed": 7, "sampling_seed": 7,
      "include_stop_str_in_output": true, "no_stop_trim": true, "stop_token_ids": [6, 5, 6],
      "allowed_token_ids": [9, 8, 9]})");
  ASSERT_THAT(job.requests, SizeIs(1));
  const Request& request = job.requests[0];
  EXPECT_EQ(request.stop.max_new_tokens, 3);
  EXPECT_EQ(request.stop.min_new_tokens, 1);
  EXPECT_EQ(request.sampling.seed, 7);
  EXPECT_TRUE(request.stop.keep_matched);
  EXPECT_THAT(request.stop.ids, ElementsAre(TokenId(5), TokenId(6)));
  EXPECT_THAT(request.sampling.allowed_tokens, ElementsAre(TokenId(8), TokenId(9)));
}

// The limits of one HTTP request cover its texts, the ids kept for them, and the time for compiling its grammars.
TEST(Requests, ThePromptsOfOneRequestAreLimitedTogether) {
  ServedModel model = test_model();
  const auto error = [&](const std::string& body) {
    const ApiResult<ApiJob> job = prepare_generate(model, body);
    return job.ok() ? "none" : job.error().param + ": " + job.error().message;
  };
  std::string prompts = "[5]";
  std::string samplings = "{}";
  for (int i = 0; i < 20; ++i) {
    prompts += ", [5]";
    samplings += R"(, {"n": 128})";
  }
  EXPECT_THAT(error(R"({"input_ids": [)" + prompts + R"(], "sampling_params": [)" + samplings + "]}"),
              HasSubstr("input_ids: at least 1025 texts"));
  std::string words;
  for (int i = 0; i < 500; ++i) {
    words += i > 0 ? ", \"" : "\"";
    for (int times = 0; times < 12; ++times) words += std::to_string(1000 + i) + ".";
    words += '"';
  }
  EXPECT_THAT(
      error(R"({"input_ids": [)" + prompts + R"(], "sampling_params": {"n": 40, "bad_words": [)" + words + "]}}"),
      HasSubstr("token ids are kept (prompts, and ids in parameters); accepted: up to 1024 texts"));
  EXPECT_THAT(error(R"({"input_ids": [[5]], "rid": ")" + std::string(300, 'x') + "\"}"), HasSubstr("rid: "));

  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const Tokenizer tokenizer = *Tokenizer::load(testing::source_path("models/demo/tokenizer.json"));
  const TokenId end = *tokenizer.token_to_id("<|im_end|>");
  model.tokenizer = &tokenizer;
  model.grammars = *GrammarCompiler::create(tokenizer, model.vocab_size, {&end, 1});
  const std::string two = R"({"input_ids": [[5], [6]], "sampling_params": [{"regex": "a"}, {"regex": "b"}]})";
  EXPECT_EQ(error(two), "none");
  model.grammar_seconds = 0;
  EXPECT_THAT(error(two), HasSubstr("sampling_params.regex: the grammars of this request take longer than 0 s"));
}

TEST(Requests, GenerateReadsSettingsOfEachPrompt) {
  const ApiJob job = prepared(prepare_generate, R"({"input_ids": [[5, 6], [7]], "stream": true,
      "sampling_params": [{"max_new_tokens": 3, "n": 2}, {"max_new_tokens": 4, "no_stop_trim": true}],
      "return_logprob": [true, false], "logprob_start_len": [1, -1], "top_logprobs_num": 2,
      "return_hidden_states": true, "priority": 3})");
  ASSERT_THAT(job.requests, SizeIs(3));
  EXPECT_TRUE(job.stream);
  EXPECT_EQ(job.requests[1].stop.max_new_tokens, 3);
  EXPECT_EQ(job.requests[1].sampling.choice, 1);
  EXPECT_EQ(job.requests[1].logprobs.output, 2);
  EXPECT_EQ(job.requests[1].logprobs.prompt, 2);
  EXPECT_EQ(job.requests[1].logprobs.prompt_start, 1);
  EXPECT_EQ(job.requests[2].stop.max_new_tokens, 4);
  EXPECT_TRUE(job.requests[2].stop.keep_matched);
  EXPECT_FALSE(job.requests[2].logprobs.output.has_value());
  EXPECT_TRUE(job.requests[2].return_hidden_states);
  EXPECT_EQ(job.requests[2].priority, 3);
}

TEST(Requests, GenerateTakesEmbeddings) {
  const ApiJob one = prepared(prepare_generate, R"({"input_embeds": [[1, 2, 3, 4], [5, 6, 7, 8]]})");
  ASSERT_THAT(one.requests, SizeIs(1));
  EXPECT_THAT(one.requests[0].prompt, SizeIs(2));
  EXPECT_THAT(one.requests[0].input_embeds, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const ApiJob two = prepared(prepare_generate, R"({"input_embeds": [[[1, 2, 3, 4]], [[5, 6, 7, 8], [9, 9, 9, 9]]]})");
  ASSERT_THAT(two.requests, SizeIs(2));
  EXPECT_THAT(two.requests[1].prompt, SizeIs(2));
  EXPECT_THAT(two.requests[0].input_embeds, SizeIs(4));
}

TEST(Requests, TokenizeAndDetokenizeConvert) {
  const ServedModel model = test_model();
  const Json ids = *Json::parse(*tokenize_body(model, R"({"prompt": "Once upon a time"})"), "ids");
  EXPECT_EQ(ids.find("count")->as_int(), std::ssize(ids.find("tokens")->as_array()));
  EXPECT_EQ(ids.find("max_model_len")->as_int(), 256);
  Json back = Json::object();
  back.set("tokens", *ids.find("tokens"));
  EXPECT_EQ(*detokenize_body(model, back.dump()), R"({"prompt":"Once upon a time"})");
}

}  // namespace
}  // namespace tessera
