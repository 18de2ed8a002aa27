// Catches: a line that is not JSON; a client's text that breaks a line in two; API keys or message content that appear
// in the log; requests without a line; and a full disk that makes requests fail.
#include "tessera/server/report/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<Json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    Result<Json> json = Json::parse(line, "line");
    EXPECT_TRUE(json.ok()) << line;
    if (json.ok()) lines.push_back(*std::move(json));
  }
  return lines;
}

std::string post_with(std::string_view headers, std::string_view target, std::string_view body) {
  std::string request = post(target, body);
  return request.insert(request.find("Content-Length"), headers);
}

std::string text(const Json& line, std::string_view name) {
  const Json* value = line.find(name);
  return value == nullptr ? "(none)" : value->is_string() ? value->as_string() : value->dump();
}

TEST(AccessLine, HasWhatIsKnown) {
  FinishedRequest finished{.method = "POST", .path = "/v1/completions", .user_agent = "curl/8", .address = "::1"};
  finished.status = 200;
  finished.bytes_in = 10;
  finished.bytes_out = 20;
  finished.seconds = 0.0123456;
  EXPECT_EQ(access_line(finished, "2026-01-02T03:04:05.000006Z", "demo"),
            R"({"time":"2026-01-02T03:04:05.000006Z","client":"::1","method":"POST","path":"/v1/completions",)"
            R"("status":200,"complete":true,"bytes_in":10,"bytes_out":20,"duration_ms":12.346,)"
            R"("user_agent":"curl/8"})"
            "\n");
  finished.generation = {.id = "cmpl-1", .tokens = {{.prompt = 5, .cached = 4, .completion = 3}}, .finish = "stop"};
  EXPECT_THAT(access_line(finished, "", "demo"),
              HasSubstr(R"("user_agent":"curl/8","model":"demo","request_id":"cmpl-1","prompt_tokens":5,)"
                        R"("cached_tokens":4,"completion_tokens":3,"finish_reason":"stop"})"));
}

TEST(AccessLine, TextOfClientsIsClippedAndStaysOneLine) {
  FinishedRequest finished{.path = "/" + std::string(5000, 'a'), .user_agent = "a\n\"\x1b\xff" + std::string(255, 'b')};
  finished.user_agent.replace(255, 2, "\xc3\xa9");  // the limit of 256 bytes cuts this character
  const std::string line = access_line(finished, "", "demo");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  Result<Json> json = Json::parse(line, "line");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_THAT(text(*json, "path"), SizeIs(1024));
  EXPECT_EQ(text(*json, "user_agent"), "a\n\"\x1b\xEF\xBF\xBD" + std::string(250, 'b'));
}

class AccessLogServer : public ServerTest {
 protected:
  std::string path() const { return folder_.path() + "/access.log"; }
  // Waits for the lines, because a client may read its answer before the line is written.
  std::vector<Json> lines(std::size_t count) const {
    EXPECT_TRUE(eventually([&] { return read_lines(path()).size() >= count; }));
    std::vector<Json> all = read_lines(path());
    EXPECT_THAT(all, SizeIs(count));
    all.resize(count, Json::object());
    return all;
  }

 private:
  test::ScratchDir folder_;
};

TEST_F(AccessLogServer, ARequestOfTheModelHasItsTokens) {
  const Running running(engine(), {.access_log = path()});
  const std::string request = completion(R"("prompt": "The secret word", "max_tokens": 5, "ignore_eos": true)");
  const Json answer = running.json(request);
  const Json& usage = *answer.find("usage");
  const Json line = lines(1)[0];
  EXPECT_THAT(text(line, "time"), MatchesRegex("....-..-..T..:..:..\\.......Z"));
  EXPECT_EQ(text(line, "client"), "127.0.0.1");
  EXPECT_EQ(text(line, "method"), "POST");
  EXPECT_EQ(text(line, "path"), "/v1/completions");
  EXPECT_EQ(text(line, "status"), "200");
  EXPECT_EQ(text(line, "complete"), "true");
  EXPECT_EQ(text(line, "bytes_in"), std::to_string(request.size()));
  EXPECT_EQ(text(line, "model"), "demo");
  EXPECT_EQ(text(line, "request_id"), answer.find("id")->as_string());
  EXPECT_EQ(text(line, "prompt_tokens"), usage.find("prompt_tokens")->dump());
  EXPECT_EQ(text(line, "completion_tokens"), "5");
  EXPECT_EQ(text(line, "finish_reason"), "length");
}

TEST_F(AccessLogServer, CachedTokensAreThoseOfThePrefixCache) {
  const Running running(engine(), {.access_log = path()});
  const std::string request = completion(
      R"("prompt": "Far away the oldest of all the little dragons kept seven apples in a box, and no friend of his knew of it, because he had hidden the box below the bed of his mother.", "max_tokens": 1)");
  running.json(request);
  running.json(request);
  const std::vector<Json> all = lines(2);
  EXPECT_EQ(text(all[0], "cached_tokens"), "0");
  EXPECT_GE(all[1].find("cached_tokens")->as_int(), 16) << "a page";
}

TEST_F(AccessLogServer, AReopenedLogIsAtItsPathAgain) {
  const Running running(engine(), {.access_log = path()});
  running.json(get("/v1/models"));
  lines(1);
  std::filesystem::rename(path(), path() + ".1");
  running.json(get("/version"));
  running.server->reopen_access_log();
  running.json(get("/engine_state"));
  EXPECT_EQ(text(lines(1)[0], "path"), "/engine_state");
  EXPECT_THAT(read_lines(path() + ".1"), SizeIs(2)) << "the earlier file has what ended before";
}

TEST_F(AccessLogServer, ALogThatCannotBeReopenedStays) {
  const Running running(engine(), {.access_log = path()});
  running.json(get("/v1/models"));
  lines(1);
  std::filesystem::rename(path(), path() + ".1");
  std::filesystem::create_directory(path());
  running.server->reopen_access_log();
  running.json(get("/version"));
  EXPECT_TRUE(eventually([&] { return read_lines(path() + ".1").size() == 2; }));
}

TEST_F(AccessLogServer, StreamsAreCountedWithTheirBytes) {
  const Running running(engine(), {.access_log = path()});
  const Reply reply = running.ask(completion(R"("prompt": "a", "max_tokens": 3, "ignore_eos": true, "stream": true)"));
  const Json line = lines(1)[0];
  EXPECT_EQ(text(line, "completion_tokens"), "3");
  EXPECT_GT(line.find("bytes_out")->as_int(), static_cast<std::int64_t>(reply.head.size() + reply.body.size()))
      << "the frames of chunks count";
}

TEST_F(AccessLogServer, RefusalsHaveTheirStatus) {
  const Running running(engine(), {.api_keys = {"key"}, .access_log = path()});
  const std::string with_key = "Authorization: Bearer key\r\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {get("/v1/models"), "401 GET /v1/models"},
      {get("/nothing?a=b", with_key), "404 GET /nothing"},
      {post_with(with_key, "/v1/completions", "{"), "400 POST /v1/completions"},
      {get("/v1/completions", with_key), "405 GET /v1/completions"},
      {"no request\r\n\r\n", "400 (none) (none)"},
      {get("/", "Origin: http://a\r\n"), "403 GET /"},
      {"OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", "204 OPTIONS /v1/models"},
  };
  std::size_t count = 0;
  for (const auto& [request, expected] : cases) {
    running.ask(request);
    const Json line = lines(++count).back();
    EXPECT_EQ(text(line, "status") + " " + text(line, "method") + " " + text(line, "path"), expected);
    EXPECT_EQ(text(line, "request_id"), "(none)") << "the model did not run";
  }
}

TEST_F(AccessLogServer, AHeadRequestIsLoggedAsSent) {
  const Running running(engine(), {.access_log = path()});
  Client client(running.port);
  client.send("HEAD /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.read_reply(/*head_only=*/true);
  EXPECT_EQ(text(lines(1)[0], "method"), "HEAD");
}

TEST_F(AccessLogServer, AClientThatLeavesLeavesAnIncompleteLine) {
  const Running running(engine(), {.access_log = path()});
  {
    Client client(running.port);
    client.send(completion(R"("prompt": "a", "max_tokens": 400, "ignore_eos": true, "stream": true)"));
    client.read_through("data: ");
    client.abort();
  }
  const Json line = lines(1)[0];
  EXPECT_EQ(text(line, "complete"), "false");
  EXPECT_EQ(text(line, "status"), "200") << "the status that was sent";
  EXPECT_THAT(text(line, "request_id"), HasSubstr("cmpl-"));
}

TEST_F(AccessLogServer, NeitherKeysNorContentAppear) {
  {
    const Running running(engine(), {.api_keys = {"hidden-key"}, .access_log = path()});
    const std::string key = "Authorization: Bearer hidden-key\r\n";
    running.ask(post_with(key, "/v1/completions?q=hidden-query", R"({"prompt": "hidden-prompt", "max_tokens": 1})"));
    running.ask(post_with(key, "/v1/completions", R"({"prompt": "hidden-prompt", "hidden-field": 1})"));
    running.ask(get("/v1/models", "Authorization: Bearer hidden-wrong\r\n"));
    lines(3);
  }
  std::ifstream file(path());
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(all, Not(HasSubstr("hidden")));
}

TEST_F(AccessLogServer, LinesAreAddedToAnExistingFile) {
  std::ofstream(path()) << "{\"old\": true}\n";
  const Running running(engine(), {.access_log = path()});
  running.ask(get("/live"));
  EXPECT_EQ(text(lines(2)[0], "old"), "true");
}

TEST_F(AccessLogServer, AFullDiskIsReportedOnceAndHarmsNothing) {
  ::testing::internal::CaptureStderr();
  {
    const Running running(engine(), {.access_log = "/dev/full"});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(running.ask(get("/live")).status, 200);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string expected = "cannot write to /dev/full: No space left on device";
  EXPECT_THAT(said, HasSubstr(expected));
  EXPECT_EQ(said.find(expected), said.rfind(expected)) << said;
}

TEST_F(AccessLogServer, APipeWithoutReaderDoesNotHoldUpRequests) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  const int reader = ::open(path().c_str(), O_RDONLY | O_NONBLOCK);
  ::testing::internal::CaptureStderr();
  {
    const Running running(engine(), {.access_log = path()});
    Client client(running.port);
    const std::string agent = "User-Agent: " + std::string(250, 'a') + "\r\n";
    for (int i = 0; i < 300; ++i) {
      client.send("GET /live HTTP/1.1\r\nHost: localhost\r\n" + agent + "\r\n");
      ASSERT_EQ(client.read_reply().status, 200);
    }
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("a line of the access log was lost"));
  ::close(reader);
}

TEST_F(AccessLogServer, AMinusIsStandardError) {
  ::testing::internal::CaptureStderr();
  {
    const Running running(engine(), {.access_log = "-"});
    running.ask(get("/live"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(R"("path":"/live")"));
}

TEST_F(AccessLogServer, AFileThatCannotBeOpenedIsAnError) {
  const Result<std::unique_ptr<Server>> made = Server::create({.access_log = "/nowhere/access.log"}, engine());
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), HasSubstr("--access-log: cannot open /nowhere/access.log: No such file"));
}

TEST_F(AccessLogServer, AfterAPartialLineANewLineBegins) {
  Result<std::unique_ptr<AccessLog>> log = AccessLog::open(path(), "demo");
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  (*log)->write({.path = "/first"});
  // A limit on the size of files makes the kernel write only a part of the second line.
  const auto earlier = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = std::filesystem::file_size(path()) + 10;
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  (*log)->write({.path = "/second"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, earlier);
  ::testing::internal::GetCapturedStderr();  // not checked, because the limit cuts off the captured log too
  (*log)->write({.path = "/third"});
  std::ifstream file(path());
  std::vector<std::string> written;
  for (std::string line; std::getline(file, line);) written.push_back(line);
  ASSERT_THAT(written, SizeIs(3));
  EXPECT_THAT(written[0], HasSubstr("/first"));
  EXPECT_THAT(written[1], SizeIs(10));
  EXPECT_THAT(written[2], HasSubstr("/third"));
}

}  // namespace
}  // namespace tessera::testing
