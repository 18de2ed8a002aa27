// Catches: web pages of other sites that reach a handler, and answers that browsers hide from pages that may read them.
#include <gmock/gmock.h>

#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string preflight(const std::string& origin, const std::string& headers = "") {
  return "OPTIONS /v1 HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin +
         "\r\nAccess-Control-Request-Method: POST\r\n" + headers + "\r\n";
}

TEST(HttpCors, ForeignPagesAreRefusedByDefault) {
  TestServer server;
  for (const std::string& request :
       {get("/", "Origin: http://a\r\n"), preflight("http://a"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 2\r\n\r\n{}")}) {
    const Reply reply = server.ask(request);
    EXPECT_EQ(reply.status, 403) << request;
    EXPECT_THAT(reply.head, Not(HasSubstr("Access-Control")));
    EXPECT_THAT(reply.body, HasSubstr("origin_not_allowed"));
  }
  EXPECT_EQ(server.ask(get("/", "Origin: http://localhost\r\n")).status, 200) << "its own page";
  EXPECT_EQ(server.ask(get("/")).status, 200) << "no page";
}

TEST(HttpCors, AllowsTheOriginsNamed) {
  TestServer server(echo, {.cors_origins = {"http://a", "http://b"}});
  const Reply allowed = server.ask(get("/", "Origin: http://b\r\n"));
  EXPECT_EQ(allowed.status, 200);
  EXPECT_TRUE(allowed.has_line("Access-Control-Allow-Origin: http://b"));
  EXPECT_TRUE(allowed.has_line("Vary: Origin"));
  EXPECT_THAT(allowed.head, Not(HasSubstr("Credentials")));
  const Reply refused = server.ask(get("/", "Origin: http://c\r\n"));
  EXPECT_EQ(refused.status, 403);
  EXPECT_TRUE(refused.has_line("Vary: Origin"));
  EXPECT_THAT(refused.head, Not(HasSubstr("Access-Control")));
  EXPECT_TRUE(server.ask(get("/%zz", "Origin: http://b\r\n")).has_line("Access-Control-Allow-Origin: http://b"));
  const Reply asked = server.ask(preflight("http://a", "Access-Control-Request-Headers: authorization,x-lang\r\n"));
  EXPECT_EQ(asked.status, 204);
  EXPECT_TRUE(asked.has_line("Access-Control-Allow-Origin: http://a"));
  EXPECT_TRUE(asked.has_line("Access-Control-Allow-Headers: authorization,x-lang"));
  EXPECT_THAT(asked.head, HasSubstr("Access-Control-Allow-Methods: GET"));
  EXPECT_EQ(server.ask(preflight("http://c")).status, 403);
}

TEST(HttpCors, StarAllowsAllOrigins) {
  TestServer server(echo, {.cors_origins = {"*"}});
  const Reply reply = server.ask(get("/", "Origin: http://z\r\n"));
  EXPECT_TRUE(reply.has_line("Access-Control-Allow-Origin: *"));
  EXPECT_THAT(reply.head, Not(HasSubstr("Credentials")));
}

std::string get_as(const std::string& host) { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"; }

TEST(HttpHost, ALoopbackServerRefusesOtherNames) {
  TestServer server;
  const Reply rebound = server.ask(get_as("rebound.example:30000"));
  EXPECT_EQ(rebound.status, 403);
  EXPECT_THAT(rebound.body, HasSubstr("host_not_allowed"));
  EXPECT_EQ(server.ask("GET http://rebound.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403);
  EXPECT_EQ(server.ask(get_as("127.0.0.1:30000")).status, 200);
  EXPECT_EQ(server.ask("GET / HTTP/1.0\r\n\r\n").status, 200);
  TestServer named(echo, {.allowed_hosts = {"llm.example"}});
  EXPECT_EQ(named.ask(get_as("llm.example")).status, 200);
  TestServer everywhere(echo, {.host = "0.0.0.0"});
  EXPECT_EQ(everywhere.ask(get_as("10.0.0.7:30000")).status, 200);
}

}  // namespace
}  // namespace tessera::testing
