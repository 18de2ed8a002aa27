// Clients can send hints about a conversation, for example how long the cache should keep it. Catches: a conversation
// that is evicted although its client wants to continue it, or that is kept after its end; a client that ends another
// client's session; an API (such as chat completions or messages) that ignores the hints; and wrong hints that are
// accepted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kHintedTokens = 97;  // 6 pages of 16 tokens, and 1 token

class SessionHintsTest : public ::testing::Test {
 protected:
  // Returns an engine whose cache has room for about six prompts.
  static std::unique_ptr<Engine> small_engine() { return make_engine({.max_total_tokens = 640, .page_size = 16}); }

  // Sends the prompt that belongs to `number`, in a request that also has the JSON members `more`. Returns how many of
  // the prompt's tokens were cached.
  static std::int64_t cached(const Running& running, int number, const std::string& more = "",
                             const std::string& headers = "") {
    std::vector<int> ids;
    for (int i = 0; i < kHintedTokens; ++i) ids.push_back(10 + (31 * number + 7 * i + i * i) % 900);
    const std::string body = fmt::format(
        R"({{"input_ids": {}, "sampling_params": {{"max_new_tokens": 1, "temperature": 0}}{}}})", ids, more);
    const Reply reply = running.ask(post("/generate", body, headers));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json answer = *Json::parse(reply.body, "answer");
    return answer.find("meta_info")->find("cached_tokens")->as_int();
  }
  // Sends many other prompts. Together they need more pages than the cache has.
  static void flood(const Running& running) {
    for (int other = 100; other < 112; ++other) cached(running, other);
  }
  static std::string close(const std::string& session, const std::string& headers = "") {
    return post("/close_session", fmt::format(R"({{"session_id": "{}"}})", session), headers);
  }
};

TEST_F(SessionHintsTest, ARetainedConversationSurvivesAFlood) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  cached(running, 1);
  flood(running);
  EXPECT_EQ(cached(running, 1), 0) << "the flood is large enough";
  cached(running, 1, R"(, "session_id": "s", "retention_seconds": 600)");
  flood(running);
  EXPECT_EQ(cached(running, 1, R"(, "session_id": "s")"), 96);
  EXPECT_THAT(running.ask(get("/metrics")).body,
              AllOf(HasSubstr("\ntessera:retained_texts 1\n"), HasSubstr("\ntessera:retained_evictions_total 0\n")));
  flood(running);
  EXPECT_EQ(cached(running, 1), 96) << "the last request of the session kept its time";
}

TEST_F(SessionHintsTest, AClosedSessionIsEvictedLikeOthers) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  cached(running, 1, R"(, "session_id": "s", "retention_seconds": 600)");
  EXPECT_EQ(running.ask(close("s")).status, 200);
  EXPECT_EQ(running.ask(close("unknown")).status, 200);
  flood(running);
  EXPECT_EQ(cached(running, 1), 0);
  cached(running, 1, R"(, "session_id": "s", "retention_seconds": 600)");
  cached(running, 1, R"(, "session_id": "s", "retention_seconds": 0)");
  flood(running);
  EXPECT_EQ(cached(running, 1), 0) << "a field ends it too";
}

TEST_F(SessionHintsTest, NoClientEndsAnothersSession) {
  const std::unique_ptr<Engine> engine = small_engine();
  ServerOptions options;
  options.api_keys = {"one", "two"};
  const Running running(*engine, options);
  const std::string one = "Authorization: Bearer one\r\n";
  const std::string two = "Authorization: Bearer two\r\n";
  cached(running, 1, R"(, "session_id": "s", "retention_seconds": 600)", one);
  cached(running, 2, R"(, "session_id": "s", "retention_seconds": 0)", two);
  EXPECT_EQ(running.ask(close("s", two)).status, 200);
  EXPECT_EQ(running.ask(close("s")).status, 401);
  for (int other = 100; other < 112; ++other) cached(running, other, "", two);
  EXPECT_EQ(cached(running, 1, "", one), 96);
  running.ask(close("s", one));
  for (int other = 100; other < 112; ++other) cached(running, other, "", two);
  EXPECT_EQ(cached(running, 1, "", one), 0);
}

TEST_F(SessionHintsTest, RequestsRunAlthoughEverythingIsRetained) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  for (int i = 0; i < 10; ++i)
    cached(running, i, fmt::format(R"(, "retention_seconds": 600, "cache_priority": {})", 10 + i));
  cached(running, 50);
  EXPECT_EQ(cached(running, 9), 96) << "the highest priority is evicted last";
  EXPECT_EQ(cached(running, 0), 0);
  // The cache has 39 pages. The last prompt takes 6, so 33 of the 60 pages of the ten retained texts are left. These
  // are five whole texts of 6 pages, and 3 pages of a sixth text. The other 27 pages were evicted, and texts without
  // pages do not count.
  EXPECT_THAT(running.ask(get("/metrics")).body,
              AllOf(HasSubstr("\ntessera:retained_texts 6\n"), HasSubstr("\ntessera:retained_evictions_total 27\n")));
}

TEST_F(SessionHintsTest, EveryProtocolTakesTheHints) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  const std::string hints = R"("session_id": "s", "retention_seconds": 60, "cache_priority": 3)";
  const std::string text = "A text that is long enough to fill more than one page of the cache, so that it is kept.";
  const std::string turns = fmt::format(R"("messages": [{{"role": "user", "content": "{}"}}])", text);
  for (const auto& [path, members] : std::initializer_list<std::pair<const char*, std::string>>{
           {"/v1/chat/completions", turns + R"(, "max_tokens": 1)"},
           {"/v1/completions", fmt::format(R"("prompt": "{}", "max_tokens": 1)", text)},
           {"/v1/responses", fmt::format(R"("input": "{}", "max_output_tokens": 1)", text)},
           {"/v1/messages", turns + R"(, "max_tokens": 1)"}}) {
    const Reply reply = running.ask(post(path, fmt::format(R"({{"model": "demo", {}, {}}})", members, hints)));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("\ntessera:retained_texts 1\n")) << path;
    running.ask(close("s"));
    cached(running, 3);  // runs a step, which updates the count
    EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("\ntessera:retained_texts 0\n")) << path;
  }
}

TEST_F(SessionHintsTest, HintsOfNvidiasClientsMeanTheSame) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  const std::string text = "A text that is long enough to fill more than one page of the cache, so that it is kept.";
  const std::string nvext =
      R"("nvext": {"agent_hints": {"prefix_id": "s", "total_requests": 6, "osl": 2, "iat": 4, "priority": 995,
                                   "latency_sensitivity": 5.0}, "cache_control": {"type": "ephemeral", "ttl": "5m"}})";
  running.json(completion(fmt::format(R"("prompt": "{}", "max_tokens": 1, {})", text, nvext)));
  EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("\ntessera:retained_texts 1\n"));
  running.ask(close("s"));
  cached(running, 3);
  EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("\ntessera:retained_texts 0\n"));
}

TEST_F(SessionHintsTest, WrongHintsAreNamed) {
  const std::unique_ptr<Engine> engine = small_engine();
  const Running running(*engine);
  struct Case {
    const char* members;
    const char* param;
    const char* accepted;
  };
  for (const Case& wrong : std::initializer_list<Case>{
           {R"("session_id": 5)", "session_id", "string"},
           {R"("retention_seconds": -1)", "retention_seconds", "86400"},
           {R"("retention_seconds": 86401)", "retention_seconds", "86400"},
           {R"("retention_seconds": "1h")", "retention_seconds", "number"},
           {R"("retention_seconds": 5, "cache_priority": 0)", "cache_priority", "[1, 100]"},
           {R"("retention_seconds": 5, "cache_priority": 101)", "cache_priority", "[1, 100]"},
           {R"("cache_priority": 5)", "cache_priority", "with \"retention_seconds\""},
           {R"("nvext": {"cache_control": {"ttl": "5 min"}})", "nvext.cache_control.ttl", "\"0s\" to \"24h\""},
           {R"("nvext": {"cache_control": {"ttl": "25h"}})", "nvext.cache_control.ttl", "\"0s\" to \"24h\""},
           {R"("nvext": {"cache_control": {"type": "ephemeral"}})", "nvext.cache_control.ttl", "which is required"},
           {R"("nvext": {"cache_control": {"ttl": "5m", "scope": "a"}})", "nvext.cache_control.scope", "type and ttl"},
           {R"("nvext": {"cache_control": {"type": "fixed"}})", "nvext.cache_control.type", "\"ephemeral\""},
           {R"("nvext": {"extra_fields": ["timing"]})", "nvext.extra_fields", "agent_hints and cache_control"},
           {R"("session_id": "a", "nvext": {"agent_hints": {"prefix_id": "b"}})", "session_id", "nvext"}}) {
    const Json answer = running.json(completion(fmt::format(R"("prompt": "a", {})", wrong.members)), 400);
    EXPECT_EQ(answer.find("error")->find("param")->as_string(), wrong.param) << wrong.members;
    EXPECT_THAT(answer.find("error")->find("message")->as_string(), HasSubstr(wrong.accepted));
  }
  const std::string longest(256, 'a');
  for (const auto& [before, param, after] : std::initializer_list<std::array<const char*, 3>>{
           {R"("session_id": ")", "session_id", R"(")"},
           {R"("nvext": {"agent_hints": {"prefix_id": ")", "nvext.agent_hints.prefix_id", R"("}})"}}) {
    running.json(completion(fmt::format(R"("prompt": "a", {}{}{})", before, longest, after)));
    const Json answer = running.json(completion(fmt::format(R"("prompt": "a", {}{}a{})", before, longest, after)), 400);
    EXPECT_EQ(answer.find("error")->find("param")->as_string(), param);
    EXPECT_THAT(answer.find("error")->find("message")->as_string(), HasSubstr("at most 256 bytes"));
  }
  EXPECT_EQ(running.json(post("/close_session", "{}"), 400).find("error")->find("param")->as_string(), "session_id");
}

}  // namespace
}  // namespace tessera::testing
