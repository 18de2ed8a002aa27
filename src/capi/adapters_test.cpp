// Catches: an adapter that gives other results if it is loaded into a running engine than if it is loaded when the
// engine is opened; loads that stop other requests; a wait that ends although a request still uses the unloaded
// adapter; invalid calls that return no error.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/testing/paths.h"
#include "tessera/capi/capi_test_util.h"

namespace tessera::capi::test {
namespace {

using testing::data_path;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string folder(const std::string& name) { return data_path("adapters/qwen3-lora/" + name); }

// Opens the small qwen3 checkpoint of the reference data (tests/data/goldens), which has no tokenizer. `more` has
// additional options and begins with a comma.
EnginePtr open_qwen(const std::string& more = R"(, "enable-lora": true)") {
  Error error;
  tessera_engine* engine = nullptr;
  const std::string options =
      R"({"model-path": ")" + data_path("goldens/qwen3") +
      R"(", "served-model-name": "demo", "dtype": "float32", "disable-cost-measurement": true, "context-length": 512,)"
      R"( "piecewise-cuda-graph-tokens": [16, 64], "cuda-graph-bs": [1, 4], "enable-deterministic-inference": true)" +
      more + "}";
  EXPECT_EQ(tessera_open(options.c_str(), &engine, error.out()), TESSERA_OK) << error.message();
  return {engine, close};
}

std::string load_body(const std::string& name, const std::string& path, const std::string& more = "") {
  return R"({"lora_name": ")" + name + R"(", "lora_path": ")" + path + "\"" + more + "}";
}

void load(tessera_engine* engine, const std::string& name, const std::string& path, const std::string& more = "") {
  Error error;
  EXPECT_EQ(tessera_lora_load(engine, load_body(name, path, more).c_str(), error.out()), TESSERA_OK) << error.message();
}

// Returns a body for /generate that names `adapter`. If `adapter` is "", the body names no adapter.
std::string generate_body(const std::string& adapter, int tokens, bool stream = false) {
  return R"({"input_ids": [5, 6, 7], "lora_path": ")" + adapter + R"(", "stream": )" + (stream ? "true" : "false") +
         R"(, "sampling_params": {"temperature": 0, "ignore_eos": true, "max_new_tokens": )" + std::to_string(tokens) +
         "}}";
}

// A request whose callback takes some milliseconds, so that the request still runs when a test looks at it.
struct SlowRequest {
  SlowRequest(tessera_engine* engine, const std::string& adapter, int tokens)
      : request(submit(engine, generate_body(adapter, tokens, /*stream=*/true), count, this)) {
    while (chunks == 0) std::this_thread::yield();
  }
  static int count(void* user, const tessera_event* event) {
    auto* const slow = static_cast<SlowRequest*>(user);
    if (event->kind == TESSERA_EVENT_CHUNK) ++slow->chunks;
    slow->code = event->code;
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    return 0;
  }
  // Waits for the last event.
  void wait() const { EXPECT_EQ(tessera_request_wait(request.get(), -1, nullptr), TESSERA_OK); }

  std::atomic<int> chunks = 0;
  std::atomic<int> code = TESSERA_OK;
  RequestPtr request;  // destroyed first, because its callback uses the other members
};

// Returns the token ids of an answer as JSON text.
std::string ids_of(tessera_engine* engine, const std::string& adapter = "") {
  Error error;
  char* answer = nullptr;
  EXPECT_EQ(tessera_ask(engine, "/generate", generate_body(adapter, 16).c_str(), &answer, error.out()), TESSERA_OK)
      << error.message();
  const std::string text = taken(answer);
  return text.empty() ? text : parsed(text).find("output_ids")->dump();
}

Json::Array listed(tessera_engine* engine) {
  Error error;
  char* json = nullptr;
  EXPECT_EQ(tessera_lora_list(engine, &json, error.out()), TESSERA_OK) << error.message();
  return parsed(taken(json)).as_array();
}

TEST(Adapters, LoadedOnesEqualThoseGivenAtTheStart) {
  const EnginePtr engine = open_qwen();
  const EnginePtr given = open_qwen(R"(, "lora-paths": ["tuned=)" + folder("r8-attention") + "\"]");
  const std::string base = ids_of(engine.get());
  EXPECT_THAT(listed(engine.get()), IsEmpty());
  load(engine.get(), "tuned", folder("r8-attention"));
  const std::string tuned = ids_of(engine.get(), "tuned");
  EXPECT_NE(tuned, base);
  EXPECT_EQ(tuned, ids_of(given.get(), "tuned"));
  EXPECT_EQ(ids_of(engine.get()), base);

  Error error;
  char* answer = nullptr;
  ASSERT_EQ(tessera_ask(engine.get(), "/v1/completions",
                        R"({"model": "tuned", "prompt": [5, 6, 7], "max_tokens": 16, "temperature": 0,
                            "ignore_eos": true})",
                        &answer, error.out()),
            TESSERA_OK)
      << error.message();
  EXPECT_EQ(parsed(taken(answer)).find("choices")->as_array()[0].find("token_ids")->dump(), tuned);

  load(engine.get(), "tuned", folder("r4-all-rslora"), R"(, "load_inplace": true)");
  EXPECT_NE(ids_of(engine.get(), "tuned"), tuned);
}

TEST(Adapters, AreListedWithWhatTheyAre) {
  const EnginePtr engine = open_qwen();
  load(engine.get(), "b", folder("r8-attention"), R"(, "pinned": true)");
  load(engine.get(), "a", folder("r4-all-rslora"));
  ids_of(engine.get(), "b");
  const Json::Array adapters = listed(engine.get());
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].dump(), parsed(R"({"lora_name": "a", "lora_path": ")" + folder("r4-all-rslora") +
                                       R"(", "rank": 4, "pinned": false, "running": 0, "on_device": false})")
                                    .dump());
  EXPECT_EQ(adapters[1].dump(), parsed(R"({"lora_name": "b", "lora_path": ")" + folder("r8-attention") +
                                       R"(", "rank": 8, "pinned": true, "running": 0, "on_device": true})")
                                    .dump());
}

TEST(Adapters, ChangeWhileOtherRequestsRun) {
  const EnginePtr engine = open_qwen();
  const SlowRequest running(engine.get(), "", 100);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "tuned" + std::to_string(t);
      for (int i = 0; i < 3; ++i) {
        Error error;
        load(engine.get(), name, folder("r8-attention"));
        ids_of(engine.get(), name);
        EXPECT_EQ(tessera_lora_unload(engine.get(), name.c_str(), error.out()), TESSERA_OK) << error.message();
        EXPECT_EQ(tessera_lora_wait(engine.get(), name.c_str(), -1, error.out()), TESSERA_OK) << error.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(listed(engine.get()), IsEmpty());
  running.wait();
  EXPECT_EQ(running.code, TESSERA_OK);
  EXPECT_EQ(running.chunks, 100);
}

TEST(Adapters, AWaitLastsUntilTheLastRequestEnds) {
  const EnginePtr engine = open_qwen();
  Error error;
  load(engine.get(), "tuned", folder("r8-attention"));
  const SlowRequest running(engine.get(), "tuned", 500);
  EXPECT_EQ(listed(engine.get())[0].find("running")->as_int(), 1);
  EXPECT_EQ(tessera_lora_wait(engine.get(), "tuned", -1, error.out()), TESSERA_OK) << "it is loaded";
  ASSERT_EQ(tessera_lora_unload(engine.get(), "tuned", error.out()), TESSERA_OK) << error.message();
  EXPECT_THAT(listed(engine.get()), IsEmpty());
  // Loads another adapter under the name of the unloaded adapter. tessera_lora_wait() must still wait for the unloaded
  // adapter.
  load(engine.get(), "tuned", folder("r4-all-rslora"));
  for (const std::int64_t timeout_ms : {0, 30}) {
    EXPECT_EQ(tessera_lora_wait(engine.get(), "tuned", timeout_ms, error.out()), TESSERA_TIMEOUT);
    EXPECT_THAT(error.message(), HasSubstr("requests still use the unloaded adapter \"tuned\""));
  }
  tessera_request_cancel(running.request.get());
  EXPECT_EQ(tessera_lora_wait(engine.get(), "tuned", -1, error.out()), TESSERA_OK) << error.message();
  running.wait();
  EXPECT_EQ(running.code, TESSERA_CANCELLED);
  EXPECT_EQ(listed(engine.get()).size(), 1u);
}

TEST(Adapters, ClosingEndsAWait) {
  EnginePtr engine = open_qwen();
  load(engine.get(), "tuned", folder("r8-attention"));
  const SlowRequest running(engine.get(), "tuned", 500);
  EXPECT_EQ(tessera_lora_unload(engine.get(), "tuned", nullptr), TESSERA_OK);
  tessera_code code = TESSERA_TIMEOUT;
  tessera_engine* const waited = engine.get();
  std::thread waiter([&] { code = tessera_lora_wait(waited, "tuned", -1, nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine.reset();
  waiter.join();
  EXPECT_TRUE(code == TESSERA_OK || code == TESSERA_FAILED_PRECONDITION) << code;
}

TEST(Adapters, WrongCallsNameTheFault) {
  const EnginePtr engine = open_qwen();
  load(engine.get(), "tuned", folder("r8-attention"));
  Error error;
  const auto refused = [&](const std::string& body, const char* field, const std::string& message) {
    EXPECT_EQ(tessera_lora_load(engine.get(), body.c_str(), error.out()), TESSERA_INVALID_ARGUMENT) << body;
    EXPECT_STREQ(tessera_error_field(error.error), field) << body;
    EXPECT_THAT(error.message(), HasSubstr(message)) << body;
  };
  refused(load_body("other", "/nowhere"), "lora_path", "/nowhere is no folder");
  refused(load_body("other", data_path("adapters/llama-lora/r16-pattern")), "lora_path", "adapter_model");
  refused(load_body("tuned", folder("r8-attention")), "lora_name", "load_inplace replaces it");
  refused(load_body("demo", folder("r8-attention")), "lora_name", "the model itself");
  refused(load_body("", folder("r8-attention")), "lora_name", "a name");
  refused(R"({"lora_name": "other"})", "lora_path", "PEFT");
  refused(load_body("other", folder("r8-attention"), R"(, "pinned": 3)"), "pinned", "true or false");
  refused(load_body("other", folder("r8-attention"), R"(, "pined": true)"), "pined", "pined");
  refused("{", "", "request's body");
  for (int i = 0; i < 7; ++i)
    load(engine.get(), "kept" + std::to_string(i), folder("r8-attention"), R"(, "pinned": true)");
  refused(load_body("other", folder("r8-attention"), R"(, "pinned": true)"), "pinned", "8 adapters would be pinned");
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(tessera_lora_unload(engine.get(), ("kept" + std::to_string(i)).c_str(), error.out()), TESSERA_OK);
  EXPECT_EQ(tessera_lora_unload(engine.get(), "other", error.out()), TESSERA_NOT_FOUND);
  EXPECT_THAT(error.message(), HasSubstr("no adapter \"other\" is loaded; loaded: tuned"));
  char* answer = nullptr;
  EXPECT_EQ(tessera_ask(engine.get(), "/generate", generate_body("other", 4).c_str(), &answer, error.out()),
            TESSERA_NOT_FOUND);
  EXPECT_STREQ(tessera_error_field(error.error), "lora_path");
  EXPECT_EQ(listed(engine.get()).size(), 1u);
  EXPECT_EQ(tessera_lora_unload(engine.get(), "tuned", error.out()), TESSERA_OK) << error.message();
  EXPECT_EQ(tessera_lora_unload(engine.get(), "tuned", error.out()), TESSERA_NOT_FOUND);
}

TEST(Adapters, EnginesWithoutThemSaySo) {
  const EnginePtr engine = open_qwen("");
  Error error;
  EXPECT_EQ(tessera_lora_load(engine.get(), load_body("tuned", folder("r8-attention")).c_str(), error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("--enable-lora"));
  EXPECT_EQ(tessera_lora_unload(engine.get(), "tuned", error.out()), TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("enable_lora"));
  EXPECT_EQ(tessera_lora_wait(engine.get(), "tuned", 0, error.out()), TESSERA_OK);
  EXPECT_THAT(listed(engine.get()), IsEmpty());
}

TEST(Adapters, CallbacksMayNotWaitForThem) {
  const EnginePtr engine = open_qwen();
  const auto try_all = [](void* user, const tessera_event* event) {
    if (event->kind != TESSERA_EVENT_END) return 0;
    auto* const asked = static_cast<tessera_engine*>(user);
    char* json = nullptr;
    for (const tessera_code code :
         {tessera_lora_load(asked, "{}", nullptr), tessera_lora_unload(asked, "a", nullptr),
          tessera_lora_wait(asked, "a", 0, nullptr), tessera_lora_list(asked, &json, nullptr)})
      EXPECT_EQ(code, TESSERA_FAILED_PRECONDITION);
    return 0;
  };
  const RequestPtr request = submit(engine.get(), generate_body("", 2), try_all, engine.get());
  EXPECT_EQ(tessera_request_wait(request.get(), -1, nullptr), TESSERA_OK);
}

}  // namespace
}  // namespace tessera::capi::test
