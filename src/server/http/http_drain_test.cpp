// Catches: a stop that loses answers, hangs, closes before load balancers can notice, or cuts off a stream without an
// error.
#include <gmock/gmock.h>

#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

TEST(HttpStop, LetsAnswersEndAndClosesTheRest) {
  Held held;
  TestServer server(held.handler(true));
  Client half = server.connect();
  Client never_asked = server.connect();
  Client streaming = server.connect();
  EXPECT_TRUE(half.send("GET / HTTP/1.1\r\n"));
  streaming.send(get("/"));
  streaming.read_through("begun\r\n");
  server.http->stop({.drain_s = 60});
  EXPECT_FALSE(server.run_has_returned(50));
  server.http->post([&] {
    held.exchanges[0].write("ended");
    held.exchanges[0].finish();
  });
  EXPECT_EQ(streaming.read_to_end(), "5\r\nended\r\n0\r\n\r\n");
  EXPECT_TRUE(never_asked.at_end());
  EXPECT_EQ(half.read_reply().status, 503);
  EXPECT_TRUE(half.at_end());
  EXPECT_FALSE(server.connect().connected());
  streaming.close();
  half.close();
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
  EXPECT_EQ(held.taken, 1);
  EXPECT_EQ(held.gone, 0);
}

// The handler holds the first exchange and refuses later ones.
TEST(HttpStop, RequestsReachTheHandlerWhileOthersEnd) {
  Held held;
  TestServer server([&](HttpExchange exchange) {
    if (exchange.request().path == "/long") return held.hold(exchange);
    exchange.respond({.status = 503});
  });
  Client idle = server.connect();
  EXPECT_EQ(idle.ask(get("/")).status, 503);
  Client long_one = server.connect();
  long_one.send(get("/long"));
  EXPECT_TRUE(eventually([&] { return held.taken == 1; }));
  server.http->stop({.drain_s = 60});
  const Reply kept = idle.ask(get("/"));
  EXPECT_EQ(kept.status, 503);
  EXPECT_TRUE(kept.has_line("Connection: close"));
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(server.ask(get("/")).status, 503) << "a new connection";
  EXPECT_EQ(server.ask(get("/")).status, 503) << "the end of a refusal does not end the server";
  server.http->post([&] { echo(held.exchanges[0]); });
  EXPECT_EQ(long_one.read_reply().status, 200);
  long_one.close();
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
}

TEST(HttpStop, AcceptsConnectionsForTheNoticeIfIdle) {
  TestServer server;
  server.http->stop({.drain_s = 60, .notice_s = 0.3});
  EXPECT_FALSE(server.run_has_returned(50));
  EXPECT_TRUE(server.ask(get("/")).has_line("Connection: close"));
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
  TestServer impatient;
  impatient.http->stop({.drain_s = 3600, .notice_s = 3600});
  EXPECT_FALSE(impatient.run_has_returned(20));
  impatient.http->stop({});
  EXPECT_TRUE(impatient.run_has_returned(kPatienceMs));
}

TEST(HttpStop, TheHandlerCanEndItsStreams) {
  Held held;
  TestServer server(held.handler(true));
  Client client = server.connect();
  client.send(get("/"));
  client.read_through("begun\r\n");
  server.http->stop({.drain_s = 0.05, .give_up = [&] {
                       held.exchanges[0].write("error");
                       held.exchanges[0].finish();
                     }});
  EXPECT_EQ(client.read_to_end(), "5\r\nerror\r\n0\r\n\r\n");
  client.close();
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
  EXPECT_EQ(held.gone, 0);
}

TEST(HttpStop, UnansweredRequestsGet503AtTheEnd) {
  Held held;
  TestServer server(held.handler(false));
  Client client = server.connect();
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.taken == 1; }));
  server.http->stop({});
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(reply.body, HasSubstr("shutting down"));
  client.close();
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
}

TEST(HttpStop, LaterAnswersAnnounceTheConnectionsEnd) {
  Held held;
  TestServer server(held.handler(false));
  Client client = server.connect();
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.taken == 1; }));
  server.http->stop({.drain_s = 60});
  server.http->post([&] { echo(held.exchanges[0]); });
  EXPECT_TRUE(client.read_reply().has_line("Connection: close"));
  EXPECT_TRUE(client.at_end());
}

TEST(HttpStop, DropsUnfinishedAnswers) {
  Held held;
  TestServer server(held.handler(true));
  Client client = server.connect();
  client.send(get("/"));
  client.read_through("begun\r\n");
  server.http->post([&] { server.http->after(60, [] { ADD_FAILURE() << "ran after the end"; }); });
  server.http->stop({.drain_s = 0.1});
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
  EXPECT_EQ(held.gone, 1);
}

TEST(HttpStop, ASecondCallShortensTheWait) {
  Held held;
  TestServer server(held.handler(true));
  Client client = server.connect();
  client.send(get("/"));
  client.read_through("begun\r\n");
  server.http->stop({.drain_s = 3600});
  EXPECT_FALSE(server.run_has_returned(20));
  server.http->stop({.drain_s = 0});
  EXPECT_TRUE(server.run_has_returned(kPatienceMs));
}

TEST(HttpStop, AStopBeforeRunTakesEffect) {
  auto http = HttpServer::create({.port = 0}, echo);
  ASSERT_TRUE(http.ok());
  (*http)->stop({.drain_s = 60});
  (*http)->run();
}

TEST(HttpStop, AServerThatNeverRanCanBeDestroyed) {
  const std::ptrdiff_t before = count_open_files();
  {
    auto http = HttpServer::create({.port = 0}, echo);
    ASSERT_TRUE(http.ok());
    Client client((*http)->port());
    EXPECT_TRUE(client.connected());
  }
  EXPECT_EQ(count_open_files(), before);
}

}  // namespace
}  // namespace tessera::testing
