// Catches: requests that are read or answered wrongly as HTTP, and limits (of heads, bodies, time and connections) that
// are not enforced. Every test uses a bare socket.
#include "tessera/server/http/http.h"

#include <gmock/gmock.h>

#include <random>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/http/http_message.h"
#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the message of an error in OpenAI's form, or "" for another body.
std::string error_message(const Reply& reply) {
  const Result<Json> body = Json::parse(reply.body, "body");
  const Json* error = body.ok() ? body->find("error") : nullptr;
  const Json* message = error != nullptr ? error->find("message") : nullptr;
  return message != nullptr && error->find("type") != nullptr ? message->as_string() : "";
}

TEST(Http, AnswersAndKeepsTheConnection) {
  TestServer server;
  Client client = server.connect();
  const Reply first = client.ask(get("/a%20b/%C3%A9?q=%20"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "GET /a b/é?q=%20 ");
  EXPECT_TRUE(first.has_line("Content-Type: text/plain"));
  EXPECT_TRUE(first.has_line("Connection: keep-alive"));
  EXPECT_EQ(client.ask(post("/p", "body")).body, "POST /p? body");
  EXPECT_EQ(client.ask("GET http://localhost/abs HTTP/1.1\r\nHost: localhost\r\n\r\n").body, "GET /abs? ");
  const Reply last = client.ask(get("/", "Connection: close\r\n"));
  EXPECT_TRUE(last.has_line("Connection: close"));
  EXPECT_TRUE(client.at_end());
}

TEST(Http, FindsHeadersInAnyCase) {
  TestServer server([](HttpExchange exchange) {
    exchange.respond({
        .body = std::string(exchange.request().header("x-THING")) + std::string(exchange.request().header("absent")),
    });
  });
  EXPECT_EQ(server.ask(get("/", "X-Thing: value\r\n")).body, "value");
}

TEST(Http, ReportsTheClientsAddressOrNetwork) {
  const auto tell = [](HttpExchange exchange) { exchange.respond({.body = exchange.request().peer}); };
  EXPECT_EQ(TestServer(tell).ask(get("/")).body, "127.0.0.1");
  TestServer both(tell, {.host = "::"});
  EXPECT_EQ(Client(both.port(), "::1").ask(get("/")).body, "::/64");
  EXPECT_EQ(Client(both.port(), "127.0.0.1").ask(get("/")).body, "127.0.0.1") << "mapped into IPv6";
}

TEST(Http, AnswersPipelinedRequestsInOrder) {
  TestServer* running = nullptr;
  TestServer server([&running](HttpExchange exchange) {
    const double delay = exchange.request().path == "/0" ? 0.05 : 0;
    running->http->after(delay, [exchange] { echo(exchange); });
  });
  running = &server;
  Client client = server.connect();
  std::string all;
  for (int i = 0; i < 1000; ++i) all += get("/" + std::to_string(i));  // more than the server reads ahead
  client.send(all);
  client.end_writing();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.read_reply().body, "GET /" + std::to_string(i) + "? ");
  EXPECT_TRUE(client.at_end());
}

TEST(Http, HeadGetsNoBodyAndOptionsReachesNoHandler) {
  TestServer server;
  Client client = server.connect();
  client.send("HEAD /h HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Reply head = client.read_reply(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.has_line("Content-Length: 8"));  // a GET would get the body "GET /h? " of 8 bytes
  const Reply options = client.ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(options.status, 204);
  EXPECT_THAT(options.head, HasSubstr("Allow: GET"));
  EXPECT_THAT(options.head, Not(HasSubstr("Content-Length")));
  EXPECT_EQ(client.ask(get("/")).status, 200);
}

TEST(Http, ReadsChunkedBodies) {
  TestServer server;
  Client client = server.connect();
  client.send("POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
  client.send("lo\r\n6;ext=1\r\n world\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "POST /c? hello world");
  EXPECT_EQ(client.ask(get("/")).status, 200);
}

// Some clients send an empty line after a body (RFC 9112, 2.2).
TEST(Http, EmptyLinesBeforeARequestAreIgnored) {
  TestServer server(echo, {.max_header_bytes = 1024});
  EXPECT_EQ(server.ask("\r\n\r\n" + get("/a")).body, "GET /a? ");
  Client client = server.connect();
  EXPECT_EQ(client.ask(post("/", "b") + "\r\n" + get("/c")).body, "POST /? b");
  EXPECT_EQ(client.read_reply().body, "GET /c? ");
  client.send("\r");  // the empty line arrives in two pieces
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(client.ask("\n" + get("/d")).body, "GET /d? ");
  std::string endless;
  for (int i = 0; i < 4096; ++i) endless += "\r\n";
  EXPECT_EQ(server.ask(endless).status, 400);
}

TEST(Http, AsksForABodyThatTheClientWithholds) {
  TestServer server;
  Client client = server.connect();
  EXPECT_EQ(
      client.ask("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").status,
      100);
  EXPECT_EQ(client.ask("ab").body, "POST /? ab");
}

TEST(Http, StreamsInChunks) {
  TestServer server([](HttpExchange exchange) {
    exchange.start_stream({.content_type = "text/event-stream", .body = "one,"});
    exchange.write("");  // an empty chunk would end a chunked body
    exchange.write("two,");
    exchange.write("three");
    exchange.finish();
    exchange.write("late");
  });
  Client client = server.connect();
  EXPECT_EQ(client.ask(get("/")).body, "one,two,three");
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_reply(true).status, 200);
  EXPECT_EQ(client.ask(get("/")).body, "one,two,three");
}

TEST(Http, ServesHttp10) {
  TestServer server([](HttpExchange exchange) {
    if (exchange.request().path == "/r") return echo(exchange);
    exchange.start_stream({.body = "a"});
    exchange.write("b");
    exchange.finish();
  });
  Client client = server.connect();
  EXPECT_EQ(client.ask("GET /r HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").status, 200);
  const Reply stream = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(stream.body, "ab");
  EXPECT_TRUE(stream.has_line("Connection: close"));
}

TEST(Http, RefusesTextThatIsNoRequest) {
  TestServer server;
  const std::string host = "Host: localhost\r\n";
  const std::string chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"garbage\r\n\r\n", 400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400},  // a TLS handshake
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"G@T / HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "no colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + std::string("a: \0\r\n\r\n", 8), 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET x HTTP/1.1\r\n" + host + "\r\n", 400},
      {get("/%zz"), 400},
      {get("/%4"), 400},
      {get("/%ff"), 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Expect: \xff\r\n\r\n", 417},
      {chunked + "zz\r\n", 400},
      {chunked + "1\r\nabcd\r\n", 400},
      {chunked + "1;" + std::string(40'000, 'a'), 400},
  };
  Client undisturbed = server.connect();
  for (const auto& [request, status] : cases) {
    Client client = server.connect();
    const Reply reply = client.ask(request);
    EXPECT_EQ(reply.status, status) << request;
    EXPECT_NE(error_message(reply), "") << request << "\n" << reply.body;
    EXPECT_TRUE(reply.has_line("Connection: close"));
    EXPECT_TRUE(client.at_end()) << request;
  }
  EXPECT_EQ(undisturbed.ask(get("/")).status, 200);
}

TEST(Http, SurvivesMutations) {
  TestServer server(echo, {.max_header_bytes = 1024, .max_body_bytes = 1024, .cors_origins = {"*"}});
  const std::vector<std::string> seeds = {
      post("/v1/completions", "{\"prompt\": 1}"),
      get("/a%20b?c", "Origin: http://x\r\nExpect: 100-continue\r\nConnection: close\r\n"),
      "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: v\r\n\r\n" +
          get("/"),
  };
  const std::vector<std::string> words = {"\r\n",        "\n",      ":", "%",  "0",
                                          "99999999999", "chunked", ";", "\"", std::string(1500, 'x')};
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (auto changes = random() % 3 + 1; changes > 0; --changes) {
      const std::size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(random() % 256);
          break;
        case 1: text.erase(at, random() % 12); break;
        case 2: text.insert(at, words[random() % words.size()]); break;
        default: text.insert(at, text.substr(at, random() % 12));
      }
    }
    Client client = server.connect();
    client.send(text);
    client.end_writing();
    const std::string answer = client.read_to_end();
    ASSERT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << text << "\n" << answer;
  }
  EXPECT_EQ(server.ask(get("/")).status, 200);
}

TEST(HttpLimits, TooLongHeadsAreRefused) {
  TestServer server(echo, {.max_header_bytes = 4096});
  EXPECT_EQ(server.ask(get("/", "A: " + std::string(3000, 'a') + "\r\n")).status, 200);
  const Reply reply = server.ask(get("/", "A: " + std::string(5000, 'a') + "\r\n"));
  EXPECT_EQ(reply.status, 431);
  EXPECT_THAT(error_message(reply), HasSubstr("4096"));
  EXPECT_EQ(server.ask(get("/" + std::string(5000, 'a'))).status, 431);

  // The lines are sent one by one, so that the server takes each line out of its buffer before the next one arrives.
  Client client = server.connect();
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n");
  for (int i = 0; i < 400 && client.send("Header-" + std::to_string(i) + ": value\r\n"); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  EXPECT_EQ(client.read_reply().status, 431);
}

TEST(HttpLimits, TooLongBodiesAreRefused) {
  TestServer server(echo, {.max_body_bytes = 100'000});
  EXPECT_EQ(server.ask(post("/", std::string(100'000, 'b'))).status, 200);
  // The server refuses before the body is sent and does not ask for the body.
  const Reply reply =
      server.ask("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100001\r\n\r\n");
  EXPECT_EQ(reply.status, 413);
  EXPECT_THAT(error_message(reply), HasSubstr("100000"));
  // A client that sends everything before it reads still gets the answer, not a reset.
  EXPECT_EQ(server.ask(post("/", std::string(1'000'000, 'b'))).status, 413);
  std::string chunks = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) chunks += "2710\r\n" + std::string(10'000, 'c') + "\r\n";
  EXPECT_EQ(server.ask(chunks).status, 413);
}

TEST(HttpLimits, SlowRequestsAreEnded) {
  TestServer server(echo, {.header_timeout_s = 0.2, .body_timeout_s = 0.2});
  Client idle = server.connect();
  Client slow_head = server.connect();
  Client slow_body = server.connect();
  slow_head.send("GET / HT");
  slow_body.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(idle.at_end());
  const Reply head = slow_head.read_reply();
  EXPECT_EQ(head.status, 408);
  EXPECT_THAT(error_message(head), HasSubstr("head"));
  EXPECT_TRUE(slow_head.at_end());
  const Reply body = slow_body.read_reply();
  EXPECT_EQ(body.status, 408);
  EXPECT_THAT(error_message(body), HasSubstr("body"));
}

TEST(HttpLimits, AnIdleConnectionIsKeptAsLongAsAnnounced) {
  TestServer server(echo, {.header_timeout_s = 0.2, .keep_alive_timeout_s = 1});
  Client kept = server.connect();
  EXPECT_TRUE(kept.ask(get("/")).has_line("Keep-Alive: timeout=1"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(kept.ask(get("/")).status, 200) << "a request that was sent in time and took its time to arrive";
  EXPECT_TRUE(kept.at_end());
  // The time limit of a head begins with its first byte.
  Client slow = server.connect();
  EXPECT_EQ(slow.ask(get("/")).status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  slow.send("GET / HT");
  EXPECT_EQ(slow.read_reply().status, 408);
  const Reply last = server.ask(get("/", "Connection: close\r\n"));
  EXPECT_THAT(last.head, Not(HasSubstr("Keep-Alive:")));
}

TEST(HttpLimits, EmptyLinesDoNotExtendAConnection) {
  TestServer server(echo, {.max_header_bytes = 1 << 26, .header_timeout_s = 0.2, .keep_alive_timeout_s = 30});
  Client with_body = server.connect();
  EXPECT_EQ(with_body.ask(post("/", "b") + "\r\n").status, 200);
  Client later = server.connect();
  EXPECT_EQ(later.ask(get("/")).status, 200);
  later.send("\r\n");
  // A client that sends only empty lines gets no more time than a silent one.
  Client endless = server.connect();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  bool sent = true;
  // Sends without a pause, so that unread bytes are present when the time limit passes.
  while (sent && std::chrono::steady_clock::now() < deadline) sent = endless.send("\r\n");
  EXPECT_FALSE(sent);
  EXPECT_EQ(with_body.ask(get("/")).status, 200);
  EXPECT_EQ(later.ask(get("/")).status, 200);
}

TEST(HttpLimits, AnswersMayTakeLong) {
  TestServer* running = nullptr;
  TestServer server([&running](HttpExchange exchange) { running->http->after(0.3, [exchange] { echo(exchange); }); },
                    {.header_timeout_s = 0.1, .body_timeout_s = 0.1, .write_timeout_s = 0.1});
  running = &server;
  EXPECT_EQ(server.ask(get("/")).status, 200);
}

TEST(HttpLimits, TooManyConnectionsAreRefused) {
  TestServer server(echo, {.max_connections = 2});
  Client first = server.connect();
  Client second = server.connect();
  EXPECT_EQ(first.ask(get("/")).status, 200);
  EXPECT_EQ(second.ask(get("/")).status, 200);
  Client third = server.connect();
  const Reply reply = third.ask(get("/"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(error_message(reply), "");
  EXPECT_TRUE(third.at_end());
  EXPECT_EQ(first.ask(get("/")).status, 200);
  second.close();
  third.close();
  EXPECT_TRUE(eventually([&] { return server.ask(get("/")).status == 200; }));
}

TEST(Http, HandlersThatThrowAnswer500) {
  TestServer server([](HttpExchange exchange) {
    if (exchange.request().path == "/stream") exchange.start_stream({.body = "begun"});
    if (exchange.request().path == "/ok") return echo(exchange);
    throw std::bad_alloc();
  });
  const Reply reply = server.ask(get("/"));
  EXPECT_EQ(reply.status, 500);
  EXPECT_NE(error_message(reply), "");
  Client stream = server.connect();
  stream.send(get("/stream"));
  // There is no last chunk, so the client sees that the body was cut off.
  EXPECT_THAT(stream.read_to_end(), Not(HasSubstr("0\r\n\r\n")));
  EXPECT_EQ(server.ask(get("/ok")).status, 200);
}

TEST(Http, ThrowingTasksDoNotDisturbOthers) {
  TestServer server;
  server.http->post([] { throw std::runtime_error("from a test"); });
  EXPECT_EQ(server.ask(get("/")).status, 200);
}

TEST(Http, HeaderValuesCannotBeginLines) {
  TestServer server([](HttpExchange exchange) {
    exchange.respond({.content_type = "a\r\nX-A: 1", .headers = {{"X-Id", "b\r\nX-B: 1\r\n\r\nbody"}}});
  });
  const Reply reply = server.ask(get("/"));
  EXPECT_TRUE(reply.has_line("Content-Type: aX-A: 1"));
  EXPECT_TRUE(reply.has_line("X-Id: bX-B: 1body"));
}

TEST(HttpListen, TakesAddressesAndNames) {
  for (const std::string host : {"127.0.0.1", "::1", "localhost", "0.0.0.0", "::"}) {
    TestServer server(echo, {.host = host});
    ASSERT_NE(server.http, nullptr);
    EXPECT_EQ(Client(server.port(), host == "::1" ? host : "127.0.0.1").ask(get("/")).status, 200) << host;
  }
}

TEST(HttpListen, ErrorsNameAddressAndReason) {
  TestServer server;
  const auto taken = HttpServer::create({.port = server.port()}, echo);
  EXPECT_EQ(taken.status().message(), "127.0.0.1:" + std::to_string(server.port()) + " is in use");
  const auto nowhere = HttpServer::create({.host = "192.0.2.1", .port = 0}, echo);
  EXPECT_THAT(nowhere.status().message(), StartsWith("cannot listen on 192.0.2.1:0: "));
  const auto unknown = HttpServer::create({.host = "no host"}, echo);
  EXPECT_THAT(unknown.status().message(), HasSubstr("'no host'"));
}

TEST(HttpListen, APortBindsAgain) {
  std::uint16_t port = 0;
  {
    TestServer server;
    port = server.port();
    Client client = server.connect();
    EXPECT_EQ(client.ask(get("/", "Connection: close\r\n")).status, 200);
    EXPECT_TRUE(client.at_end());  // the server closes first, so its side of the connection stays in TIME_WAIT
  }
  const auto again = HttpServer::create({.port = port}, echo);
  EXPECT_TRUE(again.ok()) << again.status().message();
}

}  // namespace
}  // namespace tessera::testing
