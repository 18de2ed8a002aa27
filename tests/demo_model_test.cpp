// Catches: a change anywhere that alters the text of the bundled model, which users see first, or that makes the drafts
// of its multi-token prediction (MTP) layer worse.
//
// tests/data/demo/golden.json has 20 prompts, with the greedy ids and texts that Hugging Face computes for them from
// models/demo in float32. golden.safetensors has the logits of two of these prompts.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "golden.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/verify/verify.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {
namespace {

using testing::data_path;
using testing::distance;
using testing::ids_of;
using testing::source_path;

std::unique_ptr<Engine> make_engine(const std::string& dtype = "float32",
                                    std::optional<bool> overlap_schedule = std::nullopt) {
  auto engine = Engine::create({.model_path = source_path("models/demo"),
                                .device = testing::test_device_name(),
                                .dtype = dtype,
                                .max_running_requests = 32,
                                .overlap_schedule = overlap_schedule});
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return *std::move(engine);
}

class DemoModelText : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, DemoModelText, ::testing::Bool(),
                         [](const auto& overlap) { return overlap.param ? "ahead" : "in_step"; });

TEST_P(DemoModelText, IsPinned) {
  const std::unique_ptr<Engine> engine = make_engine("float32", GetParam());
  const Json golden = *Json::read_file(data_path("demo/golden.json"));
  std::vector<Request> requests;
  for (const Json& entry : golden.as_array()) {
    const auto ids = *engine->tokenizer()->encode(entry.find("prompt")->as_string(), {.add_special_tokens = false});
    EXPECT_EQ(ids, ids_of(*entry.find("input_ids")));
    requests.push_back({.prompt = ids, .stop = {.max_new_tokens = 60}});
  }
  const std::vector<Completion> done = *engine->run(requests);
  for (std::size_t i = 0; i < done.size(); ++i) {
    const Json& entry = golden.as_array()[i];
    EXPECT_EQ(engine->tokenizer()->decode(done[i].output_ids), entry.find("text")->as_string()) << "prompt " << i;
    std::vector<TokenId> want = ids_of(*entry.find("output_ids"));
    if (done[i].finish == FinishReason::kStop) want.pop_back();  // the token that ends the text is not returned
    EXPECT_EQ(done[i].output_ids, want) << "prompt " << i;
  }
}

TEST(DemoModel, Int8CachesKeepTheText) {
  if (testing::test_device_name() != "cpu") GTEST_SKIP() << "caches of int8 are the CPU's";
  const auto engine = Engine::create({.model_path = source_path("models/demo"),
                                      .device = "cpu",
                                      .dtype = "float32",
                                      .kv_cache_dtype = "int8",
                                      .max_running_requests = 32});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const Json golden = *Json::read_file(data_path("demo/golden.json"));
  std::vector<Request> requests;
  for (const Json& entry : golden.as_array())
    requests.push_back({.prompt = ids_of(*entry.find("input_ids")), .stop = {.max_new_tokens = 60}});
  const std::vector<Completion> done = *(*engine)->run(requests);
  std::size_t same = 0;
  for (std::size_t i = 0; i < done.size(); ++i)
    same +=
        (*engine)->tokenizer()->decode(done[i].output_ids) == golden.as_array()[i].find("text")->as_string() ? 1 : 0;
  std::printf("%zu of %zu texts are those of a float32 cache\n", same, done.size());
  EXPECT_GE(same, done.size() - 2);
}

TEST(DemoModel, LogitsEqualHuggingFace) {
  const std::unique_ptr<Engine> engine = make_engine();
  const Json golden = *Json::read_file(data_path("demo/golden.json"));
  const SafetensorsFile stored = *SafetensorsFile::open(data_path("demo/golden.safetensors"));
  for (const std::size_t i : {std::size_t{0}, std::size_t{19}}) {
    std::vector<TokenId> ids = ids_of(*golden.as_array()[i].find("input_ids"));
    const std::vector<TokenId> output = ids_of(*golden.as_array()[i].find("output_ids"));
    ids.insert(ids.end(), output.begin(), output.end() - 1);
    const StoredTensor* want = stored.find("logits." + std::to_string(i));
    const Request request{.prompt = ids, .sampling = {}, .score = true};
    const std::vector<float> logits = (*engine->run({&request, 1}))[0].logits;
    std::vector<float> rows(want->data.size() / sizeof(float));
    std::memcpy(rows.data(), want->data.data(), want->data.size());
    ASSERT_EQ(logits.size(), rows.size());
    const testing::Distance d = distance(logits, rows);
    std::printf("prompt %zu: greatest difference %.2e\n", i, d.absolute);
    EXPECT_LE(d.absolute, 1e-4);
  }
}

TEST(DemoModel, ChatTemplateRendersTheGoldenPrompts) {
  const std::unique_ptr<Engine> engine = make_engine();
  const ChatTemplate chat = *ChatTemplate::parse(*engine->tokenizer_config().find_template());
  const Json golden = *Json::read_file(data_path("demo/golden.json"));
  int rendered = 0;
  for (const Json& entry : golden.as_array()) {
    if (entry.find("messages") == nullptr) continue;
    RenderOptions options;
    options.add_generation_prompt = true;
    EXPECT_EQ(*chat.render(*entry.find("messages"), options), entry.find("prompt")->as_string());
    ++rendered;
  }
  EXPECT_EQ(rendered, 7);
}

TEST(DemoModel, VerifyPassesOnTheFullLadder) {
  const std::unique_ptr<Engine> engine = make_engine();
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
  for (const VerifyRow& row : report->rows)
    EXPECT_EQ(row.difference, "") << row.runner << " " << row.size << " real " << row.real;
  std::printf("%zu comparisons in %.1f s\n", report->rows.size(), report->seconds);
}

// Returns requests like those from which the golden prompts were chosen: beginnings of stories, and chats.
std::vector<Request> requests_of_prompts(const Engine& engine) {
  const ChatTemplate chat = *ChatTemplate::parse(*engine.tokenizer_config().find_template());
  const Json prompts = *Json::read_file(source_path("tools/demo_model/prompts.json"));
  RenderOptions options;
  options.add_generation_prompt = true;
  std::vector<Request> requests;
  for (const Json& prompt : prompts.as_array()) {
    const std::string text = prompt.is_string() ? prompt.as_string() : *chat.render(prompt, options);
    requests.push_back(
        {.prompt = *engine.tokenizer()->encode(text, {.add_special_tokens = false}), .stop = {.max_new_tokens = 400}});
  }
  return requests;
}

TEST(DemoModel, ItsNextTokenLayerDraftsWell) {
  EngineOptions options{.model_path = source_path("models/demo"), .device = testing::test_device_name()};
  options.deterministic = true;  // bits of a row do not depend on the number of rows
  options.context_length = 512;
  options.max_running_requests = 32;
  options.graphs.piecewise_tokens = {4, 16, 64};
  options.graphs.measure_costs = false;  // the number of drafts must not depend on the machine's speed
  const std::unique_ptr<Engine> plain = *Engine::create(options);
  options.drafts.source = DraftSource::kLayer;
  options.drafts.layer_steps = options.drafts.most_tokens = 3;
  const std::unique_ptr<Engine> drafting = *Engine::create(options);
  const std::vector<Request> requests = requests_of_prompts(*plain);
  const std::vector<Completion> want = *plain->run(requests);
  // Runs the requests one by one, so that no step computes a prompt beside the drafts of another request.
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*drafting->run({&requests[i], 1}))[0].output_ids, want[i].output_ids) << "prompt " << i;
  const DraftStats drafts = drafting->stats().drafts;
  std::printf("%lld steps with drafts: %lld drafted, %lld kept, %.2f tokens a step\n",
              static_cast<long long>(drafts.steps), static_cast<long long>(drafts.drafted),
              static_cast<long long>(drafts.kept), drafts.mean_length());
  EXPECT_GE(drafts.mean_length(), 2.5);
  EXPECT_GT(drafts.steps, 500) << "most steps have drafts";
}

}  // namespace
}  // namespace tessera
