// Tests request fields end to end on the bundled model. Catches fields that reach the engine but do not do what their
// definition says. Examples are prompts that are truncated or continued wrongly, texts with banned words, and
// log-probabilities or hidden states that belong to another token.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"

namespace tessera {
namespace {

using test::at;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class RequestFeatures : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options{.model_path = testing::source_path("models/demo"), .device = testing::test_device_name()};
    options.dtype = "float32";
    options.context_length = 256;
    options.max_running_requests = 4;
    options.random_seed = 7;
    options.graphs.piecewise_tokens = {16, 64};
    options.graphs.decode_batches = {1, 4};
    Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = engine->release();
    Result<ServedModel> model = ServedModel::create({.served_model_name = "demo"}, *engine_);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    model_ = new ServedModel(*std::move(model));
  }
  static void TearDownTestSuite() {
    delete model_;
    delete engine_;
  }

  // Runs a request with these members, and returns its answer.
  template <class Prepare>
  static Json answer(const Prepare& prepare, const std::string& members) {
    ApiResult<ApiJob> job = prepare(*model_, "{" + members + "}");
    EXPECT_TRUE(job.ok()) << members << "\n" << job.error().message;
    if (!job.ok()) return {};
    std::vector<std::vector<RequestEvent>> events(job->requests.size());
    Result<std::vector<Completion>> done =
        engine_->run(job->requests, [&](std::size_t i, const RequestEvent& event) { events[i].push_back(event); });
    EXPECT_TRUE(done.ok()) << done.status().to_string();
    if (!done.ok()) return {};
    std::string stream;
    for (std::size_t i = 0; i < events.size(); ++i) {
      for (const RequestEvent& event : events[i])
        job->answer->on_event(i, event, &event == &events[i].back() ? &(*done)[i] : nullptr, stream);
    }
    return test::parsed(job->answer->body());
  }
  static Json completion(const std::string& members) {
    return answer(prepare_completion, R"("temperature": 0, "ignore_eos": true, )" + members);
  }
  static Json chat(const std::string& members) {
    return answer(prepare_chat, R"("temperature": 0, "ignore_eos": true, )" + members);
  }
  static std::string text(const std::string& members) {
    return at(completion(R"("prompt": "Once upon a time", "max_tokens": 24, )" + members), "choices.0.text")
        .as_string();
  }
  static const Tokenizer& tokenizer() { return *model_->tokenizer; }
  static std::string decoded(const Json& ids) {
    std::vector<TokenId> tokens;
    for (const Json& id : ids.as_array()) tokens.emplace_back(static_cast<std::int32_t>(id.as_int()));
    return tokenizer().decode(tokens, /*skip_special=*/true);
  }
  static const ServedModel& model() { return *model_; }
  static const Engine& engine() { return *engine_; }

 private:
  static inline Engine* engine_ = nullptr;
  static inline ServedModel* model_ = nullptr;
};

constexpr const char* kAsked = R"({"role": "user", "content": "Tell me a story"})";

TEST_F(RequestFeatures, TheServedModelHasTheIdsThatEndReasoning) {
  const auto end = [](const char* parser) {
    const Result<ServedModel> made = ServedModel::create({.reasoning_parser = parser}, engine());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? tokenizer().decode(made->reasoning_end, /*skip_special=*/false) : "";
  };
  EXPECT_EQ(end("qwen3"), "</think>");
  EXPECT_EQ(end("mistral"), "[/THINK]");
  EXPECT_EQ(end("none"), "");
}

TEST_F(RequestFeatures, OneRandomSeedGivesEveryStartTheSameSeeds) {
  const auto seeds = [] {
    const Result<ServedModel> made = ServedModel::create({}, engine());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    std::vector<std::int64_t> drawn;
    for (int i = 0; i < 3 && made.ok(); ++i) {
      ApiResult<ApiJob> job = prepare_completion(*made, R"({"prompt": [5]})");
      EXPECT_TRUE(job.ok()) << job.error().message;
      if (job.ok()) drawn.push_back(job->requests[0].sampling.seed.value_or(-1));
    }
    return drawn;
  };
  const std::vector<std::int64_t> first = seeds();
  EXPECT_EQ(first, seeds());
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 3U);
  for (const std::int64_t seed : first) EXPECT_TRUE(seed >= 0 && seed < std::int64_t{1} << 53) << seed;
}

TEST_F(RequestFeatures, BadWordsAreBannedEvenAfterASpace) {
  const std::string plain = text(R"("n": 1)");
  // Collects words of the text. Each word is then banned in a request of its own.
  std::set<std::string> words;
  for (std::size_t at = plain.find(' '); at != std::string::npos; at = plain.find(' ', at + 1)) {
    const std::string word = plain.substr(at + 1, plain.find_first_of(" .,!\n\"", at + 1) - at - 1);
    if (word.size() > 2) words.insert(word);
  }
  ASSERT_THAT(words, SizeIs(::testing::Ge(3u))) << plain;
  for (const std::string& word : words) {
    const std::string without = text(fmt::format(R"("bad_words": ["{}"])", word));
    EXPECT_THAT(" " + without + " ", Not(HasSubstr(" " + word + " "))) << plain;
    EXPECT_NE(without, plain) << word;
  }
  EXPECT_EQ(text(R"("bad_words": ["zebra crossing"])"), plain);
}

TEST_F(RequestFeatures, OnlyAllowedTokensAreGenerated) {
  const Json got = completion(
      R"("prompt": [5, 6], "max_tokens": 20, "return_token_ids": true, "allowed_token_ids": [300, 301, 302])");
  const Json ids = at(got, "choices.0.token_ids");
  EXPECT_THAT(ids.as_array(), SizeIs(20));
  for (const Json& id : ids.as_array()) EXPECT_TRUE(id.as_int() >= 300 && id.as_int() <= 302) << id.dump();
}

TEST_F(RequestFeatures, PromptLogprobsEqualThoseOfEcho) {
  const std::string prompt = R"("prompt": "Once upon a time there was", "max_tokens": 1, )";
  const Json echoed = completion(prompt + R"("echo": true, "logprobs": 3)");
  const Json got = at(completion(prompt + R"("prompt_logprobs": 3)"), "choices.0.prompt_logprobs");
  const std::vector<TokenId> ids = *tokenizer().encode("Once upon a time there was");
  ASSERT_THAT(got.as_array(), SizeIs(ids.size()));
  EXPECT_TRUE(got.as_array()[0].is_null());
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const Json& entry = got.as_array()[i];
    const Json* own = entry.find(std::to_string(ids[i].value()));
    ASSERT_NE(own, nullptr) << entry.dump();
    EXPECT_EQ(*own->find("logprob"), at(echoed, fmt::format("choices.0.logprobs.token_logprobs.{}", i)));
    EXPECT_EQ(*own->find("decoded_token"), at(echoed, fmt::format("choices.0.logprobs.tokens.{}", i)));
    EXPECT_GE(entry.as_object().size(), 3u);
    EXPECT_LE(entry.as_object().size(), 4u);
    // Ranks follow the order of the log-probabilities. Rank 1 has the greatest log-probability.
    for (const auto& [id, one] : entry.as_object()) {
      for (const auto& [other_id, other] : entry.as_object()) {
        if (one.find("rank")->is_null() || other.find("rank")->is_null()) continue;
        EXPECT_EQ(one.find("rank")->as_int() < other.find("rank")->as_int(),
                  one.find("logprob")->as_double() > other.find("logprob")->as_double())
            << id << " " << other_id;
      }
    }
  }
  const Json of_chat = chat(fmt::format(R"("messages": [{}], "max_tokens": 1, "prompt_logprobs": 0,
                                           "return_token_ids": true)",
                                        kAsked));
  EXPECT_EQ(at(of_chat, "prompt_logprobs").as_array().size(), at(of_chat, "prompt_token_ids").as_array().size());
  // "logprobs" has only the output's log-probabilities, although the request also asks for the prompt's.
  const Json both = completion(prompt + R"("prompt_logprobs": 1, "logprobs": 1)");
  EXPECT_THAT(at(both, "choices.0.logprobs.tokens").as_array(), SizeIs(1));
}

TEST_F(RequestFeatures, TheLastMessageIsContinued) {
  const std::string messages =
      fmt::format(R"("messages": [{}, {{"role": "assistant", "content": "Once upon a "}}], )", kAsked);
  const Json got = chat(messages + R"("continue_final_message": true, "max_tokens": 12, "return_prompt_text": true)");
  // This template trims contents, so the space is dropped.
  const std::string prompt = "<|im_start|>user\nTell me a story<|im_end|>\n<|im_start|>assistant\nOnce upon a";
  EXPECT_EQ(at(got, "prompt_text"), Json(prompt));
  Json asked = Json::object();
  asked.set("prompt", prompt).set("max_tokens", 12);
  const std::string inner = asked.dump();
  EXPECT_EQ(at(got, "choices.0.message.content"), at(completion(inner.substr(1, inner.size() - 2)), "choices.0.text"));
  const Json echoed = chat(messages + R"("continue_final_message": true, "max_tokens": 12, "echo": true)");
  EXPECT_EQ(at(echoed, "choices.0.message.content").as_string(),
            "Once upon a " + at(got, "choices.0.message.content").as_string());
  // This template keeps spaces.
  const Json kept = chat(messages + R"("continue_final_message": true, "max_tokens": 1, "return_prompt_text": true,
      "chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}")");
  EXPECT_EQ(at(kept, "prompt_text"), Json("[Tell me a story][Once upon a "));
}

TEST_F(RequestFeatures, PromptsAreTruncated) {
  const auto ids = [&](const std::string& members) {
    ApiResult<ApiJob> job = prepare_completion(model(), R"({"prompt": [1, 2, 3, 4, 5], )" + members + "}");
    EXPECT_TRUE(job.ok()) << job.error().message;
    std::vector<int> out;
    if (job.ok())
      for (const TokenId id : job->requests[0].prompt) out.push_back(id.value());
    return fmt::format("{}", out);
  };
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": 2)"), "[4, 5]");
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": 2, "truncation_side": "left")"), "[4, 5]");
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": 2, "truncation_side": "right")"), "[1, 2]");
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": 5)"), "[1, 2, 3, 4, 5]");
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": -1)"), "[1, 2, 3, 4, 5]");
  EXPECT_EQ(ids(R"("truncate_prompt_tokens": -1, "max_tokens": 253)"), "[3, 4, 5]");
  // Without truncation, a prompt longer than the context is an error. With truncation, it gets an answer.
  std::string long_text = "a";
  for (int i = 0; i < 400; ++i) long_text += " a";
  const std::string message = fmt::format(R"("messages": [{{"role": "user", "content": "{}"}}], )", long_text);
  EXPECT_FALSE(prepare_chat(model(), "{" + message + R"("max_tokens": 4})").ok());
  EXPECT_EQ(at(chat(message + R"("max_tokens": 4, "truncate_prompt_tokens": -1)"), "usage.prompt_tokens"), Json(252));
}

TEST_F(RequestFeatures, StructuredOutputsFollowTheirConstraint) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const auto one_of = [&](const std::string& field) {
    return at(completion(R"("prompt": "Once upon a time", "max_tokens": 60, )" + field), "choices.0.text").as_string();
  };
  EXPECT_THAT((std::vector<std::string>{"yes", "no"}),
              Contains(one_of(R"("structured_outputs": {"choice": ["yes", "no"]})")));
  // Uses characters that need an escape in EBNF, in JSON, or in both.
  EXPECT_EQ(one_of(R"("guided_choice": ["a\"b\\c\n\u0001\tü€]"])"), "a\"b\\c\n\x01\tü€]");
  EXPECT_EQ(one_of(R"("guided_choice": ["a\u0000b"])"), std::string("a\0b", 3));
  EXPECT_EQ(one_of(R"("structured_outputs": {"regex": "ab{3}c"})"), "abbbc");
  EXPECT_EQ(one_of(R"("structured_outputs": {"grammar": "root ::= \"x\" \"y\""})"), "xy");
  EXPECT_EQ(one_of(R"("structured_outputs": {"json": {"const": 5}})"), "5");
  EXPECT_THAT(one_of(R"("structured_outputs": {"json_object": true})"), StartsWith("{"));
}

TEST_F(RequestFeatures, ReasoningSetsWhatTheTemplateNames) {
  const auto prompt_of = [](const std::string& members) {
    ApiResult<ApiJob> job =
        prepare_chat(model(), R"({"messages": [{"role": "user", "content": "a"}], )" + members + "}");
    EXPECT_TRUE(job.ok()) << members;
    return job.ok() ? tokenizer().decode(job->requests[0].prompt, /*skip_special=*/true) : "";
  };
  const std::string both = R"(, "chat_template": "{{ reasoning_effort }} {{ enable_thinking }}")";
  EXPECT_EQ(prompt_of(R"("reasoning": {"effort": "high", "summary": "auto"})" + both), "high True");
  EXPECT_EQ(prompt_of(R"("reasoning": {"effort": "none"})" + both), " False");
  EXPECT_EQ(prompt_of(R"("reasoning": {"effort": "low"}, "reasoning_effort": "low")" + both), "low True");
  EXPECT_EQ(prompt_of(R"("reasoning": {"effort": "low"})"), prompt_of(R"("n": 1)"));
  EXPECT_EQ(prompt_of(R"("reasoning": null)"), prompt_of(R"("n": 1)"));
}

TEST_F(RequestFeatures, ChatsTakeIdsInsteadOfMessages) {
  const Json of_chat = chat(R"("messages": [{"role": "user", "content": "a"}], "input_ids": [5, 6, 7], "max_tokens": 8,
                               "return_token_ids": true)");
  EXPECT_EQ(at(of_chat, "prompt_token_ids").dump(), "[5, 6, 7]");
  const Json plain = completion(R"("prompt": [5, 6, 7], "max_tokens": 8, "return_token_ids": true)");
  EXPECT_EQ(at(of_chat, "choices.0.token_ids"), at(plain, "choices.0.token_ids"));
  EXPECT_EQ(at(of_chat, "choices.0.message.content"), at(plain, "choices.0.text"));
  EXPECT_EQ(decoded(at(of_chat, "choices.0.token_ids")), at(plain, "choices.0.text").as_string());
}

TEST_F(RequestFeatures, HiddenStatesAreTheLastRow) {
  const Json rows = at(answer(prepare_generate, R"("input_ids": [5, 6, 7], "return_hidden_states": true,
      "sampling_params": {"temperature": 0, "ignore_eos": true, "max_new_tokens": 4})"),
                       "meta_info.hidden_states");
  const std::string members = R"("max_tokens": 4, "return_hidden_states": true)";
  EXPECT_EQ(at(completion(R"("prompt": [5, 6, 7], )" + members), "choices.0.hidden_states"), rows.as_array().back());
  EXPECT_EQ(at(chat(R"("input_ids": [5, 6, 7], )" + members), "choices.0.hidden_states"), rows.as_array().back());
}

TEST_F(RequestFeatures, TokensAreShownAsIds) {
  const Json got = completion(
      R"("prompt": [5, 6], "max_tokens": 3, "logprobs": 2, "return_tokens_as_token_ids": true, "return_token_ids": true)");
  const Json& ids = at(got, "choices.0.token_ids");
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string name = "token_id:" + ids.as_array()[i].dump();
    EXPECT_EQ(at(got, fmt::format("choices.0.logprobs.tokens.{}", i)), Json(name));
    EXPECT_NE(at(got, fmt::format("choices.0.logprobs.top_logprobs.{}", i)).find(name), nullptr);
  }
}

}  // namespace
}  // namespace tessera
