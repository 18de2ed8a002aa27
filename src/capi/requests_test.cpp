// Catches: answers that differ from those of the server; streams that lose events; cancellations that do not end a
// request.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/capi/capi_test_util.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kShort =
    R"({"text": "Once upon a time", "sampling_params": {"temperature": 0, "max_new_tokens": 12}})";

Json ask(const char* path, const std::string& body) {
  Error error;
  char* answer = nullptr;
  EXPECT_EQ(tessera_ask(demo(), path, body.c_str(), &answer, error.out()), TESSERA_OK) << error.message();
  return parsed(taken(answer));
}

TEST(Requests, StreamedAndWholeAnswersHaveTheSameText) {
  const std::string whole = ask("/generate", kShort).find("text")->as_string();
  EXPECT_GT(whole.size(), 12u);

  std::string streamed = kShort;
  streamed.replace(1, 0, R"("stream": true, )");
  const RequestPtr request = submit(demo(), streamed);
  int chunks = 0;
  std::string last;
  for (Taken event = next(request.get());; event = next(request.get())) {
    if (event.kind == TESSERA_EVENT_END) {
      EXPECT_EQ(event.json, "");
      break;
    }
    ASSERT_EQ(event.kind, TESSERA_EVENT_CHUNK) << event.json;
    last = parsed(event.json).find("text")->as_string();
    ++chunks;
  }
  EXPECT_EQ(last, whole);
  EXPECT_EQ(chunks, 12);
  Error error;
  tessera_event none{.size = sizeof(none), .kind = 0, .code = 0, .json = nullptr, .json_size = 0};
  EXPECT_EQ(tessera_request_next(request.get(), -1, &none, error.out()), TESSERA_FAILED_PRECONDITION);
}

TEST(Requests, EveryPathOfTheServerAnswers) {
  EXPECT_EQ(ask("/v1/completions", R"({"prompt": "Once", "max_tokens": 3})").find("object")->as_string(),
            "text_completion");
  const Json with_logprobs = ask(
      "/generate",
      R"({"text": ["Once", "There"], "return_logprob": true, "top_logprobs_num": 2, "sampling_params": {"max_new_tokens": 2}})");
  ASSERT_EQ(with_logprobs.as_array().size(), 2u);
  const Json& meta = *with_logprobs.as_array()[1].find("meta_info");
  EXPECT_EQ(meta.find("output_top_logprobs")->as_array()[1].as_array().size(), 2u);
  Error error;
  char* answer = nullptr;
  EXPECT_EQ(tessera_ask(demo(), "/v1/nothing", "{}", &answer, error.out()), TESSERA_NOT_FOUND);
  EXPECT_THAT(error.message(), HasSubstr("/generate"));
}

TEST(Requests, EmbeddingsHaveUnitLength) {
  const EnginePtr engine = open_demo(R"(, "is-embedding": true)");
  Error error;
  char* answer = nullptr;
  ASSERT_EQ(tessera_ask(engine.get(), "/v1/embeddings", R"({"input": ["Once", "upon a time"]})", &answer, error.out()),
            TESSERA_OK)
      << error.message();
  const Json json = parsed(taken(answer));
  ASSERT_EQ(json.find("data")->as_array().size(), 2u);
  double squares = 0;
  for (const Json& value : json.find("data")->as_array()[0].find("embedding")->as_array())
    squares += value.as_double() * value.as_double();
  EXPECT_NEAR(squares, 1, 1e-4);
  EXPECT_EQ(tessera_ask(engine.get(), "/generate", kShort, &answer, error.out()), TESSERA_INVALID_ARGUMENT);
}

TEST(Requests, ACancelledRequestEndsWithItsError) {
  const RequestPtr request = submit(demo(), kLongStream);
  EXPECT_EQ(next(request.get()).kind, TESSERA_EVENT_CHUNK);
  tessera_request_cancel(request.get());
  tessera_request_cancel(request.get());
  Taken event = next(request.get());
  while (event.kind == TESSERA_EVENT_CHUNK) event = next(request.get());
  EXPECT_EQ(event.kind, TESSERA_EVENT_ERROR);
  EXPECT_EQ(event.code, TESSERA_CANCELLED);
  EXPECT_THAT(event.json, HasSubstr("cancelled"));
  EXPECT_EQ(tessera_request_wait(request.get(), 0, nullptr), TESSERA_OK);
}

TEST(Requests, ATimeoutDoesNotEndTheRequest) {
  const RequestPtr request = submit(demo(), kLongStream);
  Error error;
  EXPECT_EQ(tessera_request_wait(request.get(), 10, error.out()), TESSERA_TIMEOUT);
  EXPECT_THAT(error.message(), HasSubstr("10 ms"));
  EXPECT_EQ(next(request.get()).kind, TESSERA_EVENT_CHUNK);
}

struct Seen {
  std::mutex mutex;
  std::vector<int> kinds;
  int most = 1 << 30;  // the callback cancels the request at the event with this number
  std::thread::id thread;
};

int see(void* user, const tessera_event* event) {
  auto& seen = *static_cast<Seen*>(user);
  const std::lock_guard lock(seen.mutex);
  EXPECT_EQ(event->size, sizeof(tessera_event));
  seen.kinds.push_back(event->kind);
  seen.thread = std::this_thread::get_id();
  return std::ssize(seen.kinds) >= seen.most ? 1 : 0;
}

TEST(Requests, CallbacksGetEveryEventOnAnotherThread) {
  std::string body = kShort;
  body.replace(1, 0, R"("stream": true, )");
  Seen seen;
  const RequestPtr request = submit(demo(), body, see, &seen);
  ASSERT_EQ(tessera_request_wait(request.get(), -1, nullptr), TESSERA_OK);
  ASSERT_EQ(seen.kinds.size(), 13u);
  EXPECT_EQ(seen.kinds.back(), TESSERA_EVENT_END);
  EXPECT_NE(seen.thread, std::this_thread::get_id());
  Error error;
  tessera_event event{.size = sizeof(event), .kind = 0, .code = 0, .json = nullptr, .json_size = 0};
  EXPECT_EQ(tessera_request_next(request.get(), 0, &event, error.out()), TESSERA_FAILED_PRECONDITION);
}

TEST(Requests, ACallbackCancelsByItsResult) {
  Seen seen;
  seen.most = 3;
  const RequestPtr request = submit(demo(), kLongStream, see, &seen);
  ASSERT_EQ(tessera_request_wait(request.get(), -1, nullptr), TESSERA_OK);
  EXPECT_EQ(seen.kinds,
            (std::vector<int>{TESSERA_EVENT_CHUNK, TESSERA_EVENT_CHUNK, TESSERA_EVENT_CHUNK, TESSERA_EVENT_ERROR}));
}

// Calls the library inside a callback. Functions that wait must be refused. All other functions must work, also the
// function that frees another request of the engine.
int call_back_in(void* user, const tessera_event* event) {
  if (event->kind != TESSERA_EVENT_CHUNK) return 0;
  auto& refused = *static_cast<std::atomic<int>*>(user);
  char* text = nullptr;
  refused += tessera_close(demo(), nullptr) == TESSERA_FAILED_PRECONDITION ? 1 : 0;
  refused += tessera_info(demo(), &text, nullptr) == TESSERA_FAILED_PRECONDITION ? 1 : 0;
  refused += tessera_ask(demo(), "/generate", kShort, &text, nullptr) == TESSERA_FAILED_PRECONDITION ? 1 : 0;
  refused += tessera_metrics(demo(), &text, nullptr) == TESSERA_OK ? 1 : 0;
  tessera_free(text);
  RequestPtr nested = submit(demo(), kLongStream);
  refused += tessera_request_wait(nested.get(), 0, nullptr) == TESSERA_FAILED_PRECONDITION ? 1 : 0;
  tessera_request_cancel(nested.get());
  return 1;
}

TEST(Requests, CallbacksMayCallFunctionsThatDoNotWait) {
  std::atomic<int> refused = 0;
  const RequestPtr request = submit(demo(), kLongStream, call_back_in, &refused);
  ASSERT_EQ(tessera_request_wait(request.get(), -1, nullptr), TESSERA_OK);
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(tessera_health(demo(), nullptr), TESSERA_OK);
}

}  // namespace
}  // namespace tessera::capi::test
