// A job is an HTTP request, for which the engine gets one or more requests. Catches: a stream that fails in the middle
// but looks as if it had ended normally; a refusal that does not get an HTTP status of its own; an engine request that
// continues although another one of the same job has failed or the client has left.
#include "tessera/server/work/live_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <optional>

#include "tessera/server/http/bodies/content_coding.h"
#include "tessera/server/http/http_test_util.h"

namespace tessera {
namespace {

using testing::Client;
using ::testing::ElementsAre;
using testing::eventually;
using testing::get;
using ::testing::HasSubstr;
using testing::Reply;

// Sends the text of every event.
class EchoAnswer : public Answer {
 public:
  explicit EchoAnswer(bool large) : large_(large) {}
  void on_event(std::size_t index, const RequestEvent& event, Completion*, std::string& stream) override {
    text_ += event.text;
    append_server_sent_event(stream, std::to_string(index) + event.text);
  }
  std::string last_events() override { return server_sent_event("last"); }
  std::string body() override { return text_; }
  std::optional<JsonParts> large_body() override {
    if (!large_) return std::nullopt;
    JsonParts parts;
    return parts.each(parts_, [this](JsonWriter& json, std::size_t i) {
      if (i == fails_at_) throw std::runtime_error("no memory");
      json.raw(parts_ == 1 ? text_ : std::string(kPart, static_cast<char>('a' + i)));
    });
  }

  std::optional<JsonParts> large_events() override { return large_body(); }
  bool keeps_alive() const override { return keeps_alive_; }
  std::string keep_alive() override { return server_sent_event("silence"); }

  bool keeps_alive_ = false;

  static constexpr std::size_t kPart = 200'000;
  std::size_t parts_ = 1;
  std::size_t fails_at_ = SIZE_MAX;

 private:
  bool large_;
  std::string text_;
};

// A server that turns every call into a job of two requests. The test takes the place of the engine.
class Jobs {
 public:
  explicit Jobs(bool stream, bool large = false, std::size_t parts = 1, std::size_t fails_at = SIZE_MAX,
                double silent_s = 0, const std::string& accepted = "", bool scores = false)
      : server_([this, stream, large, parts, fails_at, silent_s, scores](HttpExchange exchange) {
          ApiJob job{
              .id = "job", .requests = std::vector<Request>(2), .request_ids = {"first", "second"}, .stream = stream};
          for (Request& request : job.requests) request.score = scores;
          auto answer = std::make_unique<EchoAnswer>(large);
          answer->parts_ = parts;
          answer->fails_at_ = fails_at;
          answer->keeps_alive_ = silent_s > 0;
          job.answer = std::move(answer);
          jobs_->start(Call(std::move(exchange), "/test", metrics_, /*logged=*/false), std::move(job));
        }) {
    LiveJobs::Hooks hooks{
        .submit =
            [this](Ticket ticket, const Request&) {
              const std::lock_guard lock(mutex_);
              submitted_.push_back(ticket);
            },
        .cancel =
            [this](Ticket ticket) {
              const std::lock_guard lock(mutex_);
              cancelled_.push_back(ticket);
            },
        .abort =
            [this](Ticket ticket) {
              const std::lock_guard lock(mutex_);
              aborted_.push_back(ticket);
            },
        .after = [this](double seconds, std::function<void()> task) { server_.http->after(seconds, std::move(task)); },
        .build_elsewhere =
            [this, parts](const Call& call, const std::function<std::string()>& build,
                          const std::function<void(std::string)>& then) {
              ++built_;
              std::string part;
              try {
                part = build();
              } catch (const std::exception& e) {
                return call.fail(api_error(internal_error(e.what())));
              }
              then((parts == 1 ? "elsewhere " : "") + part);
            },
        .silent_s = silent_s};
    jobs_.emplace(std::move(hooks), metrics_);
    client.send(get("/test", accepted.empty() ? "" : "Accept-Encoding: " + accepted + "\r\n"));
    EXPECT_TRUE(eventually([this] { return submitted().size() == 2; }));
  }

  int built() const { return built_; }
  std::vector<Ticket> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  std::vector<Ticket> cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }
  // Ends the requests with the id, and returns the tickets of the ended requests.
  std::vector<Ticket> abort(const std::string& id) {
    std::promise<std::size_t> count;
    server_.http->post([&] { count.set_value(jobs_->abort(id)); });
    const std::size_t counted = count.get_future().get();
    EXPECT_EQ(counted, aborted_.size());
    return std::exchange(aborted_, {});
  }
  void event(std::size_t index, const std::string& text, FinishReason finish = FinishReason::kNone, Status error = {}) {
    server_.http->post([this, ticket = submitted()[index], text, finish, error] {
      std::vector<EngineThread::Event> events(1);
      events[0].ticket = ticket;
      events[0].event = {.text = text, .finish = finish, .error = error};
      if (finish == FinishReason::kStop) events[0].end = std::make_unique<Completion>();
      jobs_->dispatch(events);
    });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Ticket> submitted_;
  std::vector<Ticket> cancelled_;
  std::vector<Ticket> aborted_;
  std::atomic<int> built_ = 0;
  ServerMetrics metrics_{MetricsStyle::kSglang, "demo"};
  std::optional<LiveJobs> jobs_;
  testing::TestServer server_;

 public:
  Client client = server_.connect();
};

TEST(LiveJobs, AnswersWhenAllTextsHaveEnded) {
  Jobs jobs(/*stream=*/false);
  jobs.event(1, "b", FinishReason::kStop);
  jobs.event(0, "a");
  jobs.event(0, "", FinishReason::kStop);
  EXPECT_EQ(jobs.client.read_reply().body, "ba");
  EXPECT_THAT(jobs.cancelled(), ElementsAre());
}

TEST(LiveJobs, LargeBodiesAreBuiltElsewhere) {
  Jobs jobs(/*stream=*/false, /*large=*/true);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  EXPECT_EQ(jobs.client.read_reply().body, "elsewhere ab");
}

TEST(LiveJobs, LargeBodiesAreSentPartByPart) {
  Jobs jobs(/*stream=*/false, /*large=*/true, /*parts=*/3);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  const Reply reply = jobs.client.read_reply();
  EXPECT_TRUE(reply.has_line("Transfer-Encoding: chunked")) << reply.head;
  EXPECT_TRUE(reply.has_line("Content-Type: application/json")) << reply.head;
  EXPECT_EQ(reply.body.size(), 3 * EchoAnswer::kPart + 2) << "with the commas between them";
}

TEST(LiveJobs, LargeBodiesAreCompressedForClientsThatAcceptIt) {
  for (const char* coding : {"zstd", "gzip"}) {
    Jobs jobs(/*stream=*/false, /*large=*/true, /*parts=*/3, SIZE_MAX, /*silent_s=*/0, coding);
    jobs.event(0, "a", FinishReason::kStop);
    jobs.event(1, "b", FinishReason::kStop);
    const Reply reply = jobs.client.read_reply();
    EXPECT_TRUE(reply.has_line("Content-Encoding: " + std::string(coding))) << reply.head;
    EXPECT_TRUE(reply.has_line("Vary: Accept-Encoding")) << reply.head;
    EXPECT_LT(reply.body.size(), EchoAnswer::kPart);
    MemoryCharge memory;
    ApiResult<std::string> body = decode_body(reply.body, coding, 4 * EchoAnswer::kPart, memory);
    ASSERT_TRUE(body.ok());
    EXPECT_EQ(body->size(), 3 * EchoAnswer::kPart + 2);
  }
}

TEST(LiveJobs, LargeEventsOfStreamsAreSentInParts) {
  constexpr std::size_t kParts = 400;
  Jobs jobs(/*stream=*/true, /*large=*/true, kParts);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  EXPECT_TRUE(eventually([&] { return jobs.built() > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(jobs.built(), static_cast<int>(kParts) / 2) << "they wait for the client";
  const std::string body = jobs.client.read_reply().body;
  const std::string first = "data: 0a\n\ndata: 1b\n\n";
  const std::string last = "data: last\n\ndata: [DONE]\n\n";
  EXPECT_EQ(body.size(), first.size() + kParts * (EchoAnswer::kPart + 1) - 1 + last.size());
  EXPECT_TRUE(body.starts_with(first + "aaa")) << body.substr(0, 40);
  EXPECT_TRUE(body.ends_with(last));
}

// The client reads nothing, so its socket takes only some parts. Further parts must not be built.
TEST(LiveJobs, PartsWaitForASlowClient) {
  constexpr std::size_t kParts = 400;
  Jobs jobs(/*stream=*/false, /*large=*/true, kParts);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  EXPECT_TRUE(eventually([&] { return jobs.built() > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(jobs.built(), static_cast<int>(kParts) / 2);
  EXPECT_EQ(jobs.client.read_reply().body.size(), kParts * (EchoAnswer::kPart + 1) - 1);
}

TEST(LiveJobs, RequestsAreEndedByTheirIds) {
  Jobs jobs(/*stream=*/false);
  EXPECT_THAT(jobs.abort("other"), ElementsAre());
  EXPECT_THAT(jobs.abort("second"), ElementsAre(jobs.submitted()[1]));
  EXPECT_EQ(jobs.abort("job").size(), 2u);
  EXPECT_EQ(jobs.abort("").size(), 2u);
  jobs.event(1, "b", FinishReason::kCancelled);
  EXPECT_THAT(jobs.abort("second"), ElementsAre()) << "it has ended";
  jobs.event(0, "a", FinishReason::kStop);
  EXPECT_EQ(jobs.client.read_reply().body, "ba") << "with the text so far";
  EXPECT_THAT(jobs.abort(""), ElementsAre());
}

// An aborted request that scores a text has no scores, so no answer can be made from it.
TEST(LiveJobs, AnAbortedScoreIsAnError) {
  Jobs jobs(/*stream=*/false, /*large=*/false, 1, SIZE_MAX, /*silent_s=*/0, "", /*scores=*/true);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "", FinishReason::kCancelled);
  const auto reply = jobs.client.read_reply();
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, ::testing::HasSubstr("/abort_request"));
}

TEST(LiveJobs, AFailingPartBreaksTheAnswerOff) {
  Jobs jobs(/*stream=*/false, /*large=*/true, /*parts=*/3, /*fails_at=*/1);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  const std::string all = jobs.client.read_to_end();
  EXPECT_THAT(all, ::testing::StartsWith("HTTP/1.1 200 "));
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << "the client can tell";
}

TEST(LiveJobs, StreamsEndWithDone) {
  Jobs jobs(/*stream=*/true);
  jobs.event(1, "b", FinishReason::kStop);
  jobs.event(0, "a", FinishReason::kStop);
  EXPECT_EQ(jobs.client.read_reply().body, "data: 1b\n\ndata: 0a\n\ndata: last\n\ndata: [DONE]\n\n");
}

TEST(LiveJobs, ARefusalBeforeTheStreamKeepsItsStatus) {
  Jobs jobs(/*stream=*/true);
  jobs.event(0, "", FinishReason::kError, resource_exhausted("the queue is full"));
  const Reply reply = jobs.client.read_reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.body, HasSubstr("the queue is full"));
  EXPECT_THAT(jobs.cancelled(), ElementsAre(jobs.submitted()[1]));
}

TEST(LiveJobs, AStreamsErrorIsAnEventAndEndsIt) {
  Jobs jobs(/*stream=*/true);
  jobs.event(0, "a");
  jobs.event(1, "", FinishReason::kTimeout, cancelled("too slow"));
  jobs.event(0, "late");
  const Reply reply = jobs.client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body.starts_with("data: 0a\n\ndata: {\"error\": ")) << reply.body;
  EXPECT_THAT(reply.body, HasSubstr("too slow"));
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n")) << reply.body;
  EXPECT_THAT(jobs.cancelled(), ElementsAre(jobs.submitted()[0]));
}

TEST(LiveJobs, AStreamSendsSomethingWhileTheEngineIsSilent) {
  Jobs jobs(/*stream=*/true, /*large=*/false, /*parts=*/1, /*fails_at=*/SIZE_MAX, /*silent_s=*/0.02);
  EXPECT_THAT(jobs.client.read_through("silence\n\n"), HasSubstr("200 OK")) << "before the first event";
  jobs.client.read_through("silence\n\n");
  jobs.event(0, "a", FinishReason::kStop);
  jobs.client.read_through("0a");
  jobs.client.read_through("silence\n\n");
  jobs.event(1, "b", FinishReason::kStop);
  EXPECT_THAT(jobs.client.read_through("[DONE]"), HasSubstr("1b"));
}

TEST(LiveJobs, AStreamWithEventsSendsNothingElse) {
  Jobs jobs(/*stream=*/true, /*large=*/false, /*parts=*/1, /*fails_at=*/SIZE_MAX, /*silent_s=*/60);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.event(1, "b", FinishReason::kStop);
  EXPECT_EQ(jobs.client.read_reply().body, "data: 0a\n\ndata: 1b\n\ndata: last\n\ndata: [DONE]\n\n");
}

TEST(LiveJobs, ADisconnectCancelsRunningRequests) {
  Jobs jobs(/*stream=*/true);
  jobs.event(0, "a", FinishReason::kStop);
  jobs.client.read_through("0a");
  jobs.client.abort();
  EXPECT_TRUE(eventually([&] { return !jobs.cancelled().empty(); }));
  EXPECT_THAT(jobs.cancelled(), ElementsAre(jobs.submitted()[1]));
}

}  // namespace
}  // namespace tessera
