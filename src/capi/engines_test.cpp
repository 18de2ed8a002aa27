// Catches: engines that disturb each other; a close that leaves requests running, or that fails when another thread
// cancels a request at the same moment; and a forked process that waits forever for its parent's engine.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tessera/capi/capi_test_util.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;

std::string generated(tessera_engine* engine, const std::string& text) {
  Error error;
  char* answer = nullptr;
  const std::string body = R"({"text": ")" + text + R"(", "sampling_params": {"temperature": 0, "max_new_tokens": 8}})";
  EXPECT_EQ(tessera_ask(engine, "/generate", body.c_str(), &answer, error.out()), TESSERA_OK) << error.message();
  return parsed(taken(answer)).find("text")->as_string();
}

TEST(Engines, SeveralServeManyThreadsAtOnce) {
  // Both engines are deterministic, so a request's text does not depend on the other requests in its batch.
  const EnginePtr one = open_demo(R"(, "enable-deterministic-inference": true)");
  const EnginePtr other = open_demo(R"(, "enable-deterministic-inference": true, "disable-cuda-graph": true)");
  const std::string once = generated(one.get(), "Once upon a time");
  const std::string there = generated(one.get(), "There was");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      tessera_engine* engine = t % 2 == 0 ? one.get() : other.get();
      for (int i = 0; i < 4; ++i) {
        if (generated(engine, "Once upon a time") != once) ++wrong;
        if (generated(engine, "There was") != there) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Engines, ClosingEndsRunningRequests) {
  EnginePtr engine = open_demo();
  std::atomic<int> ends = 0;
  const auto count_end = [](void* user, const tessera_event* event) {
    if (event->kind == TESSERA_EVENT_ERROR && event->code == TESSERA_CANCELLED) ++*static_cast<std::atomic<int>*>(user);
    return 0;
  };
  std::vector<RequestPtr> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(submit(engine.get(), kLongStream, count_end, &ends));
  requests.push_back(submit(engine.get(), kLongStream));
  EXPECT_EQ(next(requests.back().get()).kind, TESSERA_EVENT_CHUNK);
  // Cancels from another thread, while the engine closes.
  std::thread canceller([&] { tessera_request_cancel(requests[0].get()); });
  engine.reset();
  canceller.join();
  EXPECT_EQ(ends, 3);
  Taken event = next(requests.back().get());
  while (event.kind == TESSERA_EVENT_CHUNK) event = next(requests.back().get());
  EXPECT_EQ(event.code, TESSERA_CANCELLED);
  EXPECT_THAT(event.json, HasSubstr("clos"));
  for (const RequestPtr& request : requests) tessera_request_cancel(request.get());  // no effect after the end
}

TEST(Engines, RefuseAForkedProcessInsteadOfHanging) {
  const EnginePtr engine = open_demo();
  RequestPtr request = submit(engine.get(), kLongStream);
  EXPECT_EQ(next(request.get()).kind, TESSERA_EVENT_CHUNK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that hangs
    char* text = nullptr;
    tessera_event event{.size = sizeof(event), .kind = 0, .code = 0, .json = nullptr, .json_size = 0};
    tessera_engine* second = nullptr;
    const tessera_code codes[] = {
        tessera_open(demo_options().c_str(), &second, nullptr),
        tessera_ask(engine.get(), "/generate", R"({"text": "a"})", &text, nullptr),
        tessera_health(engine.get(), nullptr),
        tessera_info(engine.get(), &text, nullptr),
        tessera_metrics(engine.get(), &text, nullptr),
        tessera_lora_load(engine.get(), "{}", nullptr),
        tessera_lora_unload(engine.get(), "a", nullptr),
        tessera_lora_wait(engine.get(), "a", -1, nullptr),
        tessera_lora_list(engine.get(), &text, nullptr),
        tessera_request_next(request.get(), -1, &event, nullptr),
        tessera_request_wait(request.get(), -1, nullptr),
        tessera_close(engine.get(), nullptr),
    };
    tessera_request_cancel(request.get());
    tessera_request_free(request.release());
    int others = 0;
    for (const tessera_code code : codes) others += code == TESSERA_FAILED_PRECONDITION ? 0 : 1;
    _exit(others);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "calls that were not refused";
  EXPECT_EQ(next(request.get()).kind, TESSERA_EVENT_CHUNK) << "the parent's request goes on";
}

TEST(Engines, ReportTheirModelAndCounters) {
  generated(demo(), "Once upon a time");
  Error error;
  char* text = nullptr;
  ASSERT_EQ(tessera_info(demo(), &text, error.out()), TESSERA_OK) << error.message();
  const Json info = parsed(taken(text));
  EXPECT_TRUE(info.find("model")->find("is_generation")->as_bool());
  EXPECT_EQ(info.find("engine")->find("plan")->find("prefill_sizes")->as_array().size(), 1u);
  ASSERT_EQ(tessera_metrics(demo(), &text, error.out()), TESSERA_OK);
  const Json metrics = parsed(taken(text));
  EXPECT_GE(metrics.find("tokens")->find("output")->as_int(), 8);
  EXPECT_GE(metrics.find("forwards")->find("tokens")->as_int(), 8);
  ASSERT_EQ(tessera_explain(demo_options().c_str(), &text, error.out()), TESSERA_OK) << error.message();
  EXPECT_THAT(taken(text), HasSubstr("\"prefill\""));
}

TEST(Engines, OpeningNamesTheWrongOption) {
  Error error;
  tessera_engine* engine = nullptr;
  EXPECT_EQ(tessera_open(R"({"model-path": "/nowhere/at-all"})", &engine, error.out()), TESSERA_NOT_FOUND);
  EXPECT_THAT(error.message(), HasSubstr("/nowhere/at-all"));
  EXPECT_EQ(tessera_open(demo_options(R"(, "mem-fraction-static": 2)").c_str(), &engine, error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("0.1 to 0.95"));
  EXPECT_EQ(tessera_open(R"({"model-path": "m", "lora-backend": "triton"})", &engine, error.out()),
            TESSERA_UNIMPLEMENTED);
  EXPECT_EQ(tessera_open(demo_options(R"(, "quantization": "awq")").c_str(), &engine, error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(engine, nullptr);
}

}  // namespace
}  // namespace tessera::capi::test
