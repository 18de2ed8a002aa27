// Catches: web pages of other sites that pass the checks by their own name (DNS rebinding) or from their own origin,
// and clients that are not browsers but are refused.
#include "tessera/server/http/http_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string code_of(const std::string& host, const std::string& origin, const HttpOptions& options = {},
                    bool loopback = true) {
  HttpRequest request;
  if (!origin.empty()) request.headers.emplace_back("origin", origin);
  const std::optional<ApiError> error = check_sender(request, host, options, loopback);
  if (!error) return "";
  EXPECT_EQ(error->http_status, 403);
  return error->code;
}

TEST(HttpGuard, RecognisesLoopbackNames) {
  for (const char* name :
       {"localhost", "LOCALHOST:1", "a.b.localhost:80", "127.0.0.1", "127.9.8.7:30000", "[::1]", "[::1]:30000"}) {
    EXPECT_TRUE(is_loopback_name(name)) << name;
  }
  for (const char* name :
       {"", "localhost.evil.example", "evillocalhost", "127.0.0.1.evil.example", "127.1", "128.0.0.1", "0.0.0.0",
        "[::2]", "::1", "[::1].evil.example", "evil.example:127", "2130706433"}) {
    EXPECT_FALSE(is_loopback_name(name)) << name;
  }
}

TEST(HttpGuard, ALoopbackServerAcceptsLoopbackAndAllowedNames) {
  EXPECT_EQ(code_of("127.0.0.1:30000", ""), "");
  EXPECT_EQ(code_of("", ""), "") << "HTTP/1.0";
  EXPECT_EQ(code_of("rebound.evil.example:30000", ""), "host_not_allowed");
  EXPECT_EQ(code_of("192.168.0.7", ""), "host_not_allowed");
  const HttpOptions options{.allowed_hosts = {"llm.example", "*.inner.example", "one.example:81"}};
  for (const char* host : {"llm.example", "LLM.example:30000", "a.inner.example", "one.example:81", "localhost"})
    EXPECT_EQ(code_of(host, "", options), "") << host;
  for (const char* host : {"evil.llm.example", "inner.example", "one.example", "one.example:82", "xllm.example"})
    EXPECT_EQ(code_of(host, "", options), "host_not_allowed") << host;
  EXPECT_EQ(code_of("any.example", "", {.allowed_hosts = {"*"}}), "");
}

TEST(HttpGuard, OtherServersCheckTheHostIfNamesAreGiven) {
  EXPECT_EQ(code_of("10.0.0.7:30000", "", {}, /*loopback=*/false), "");
  const HttpOptions options{.allowed_hosts = {"llm.example"}};
  EXPECT_EQ(code_of("10.0.0.7:30000", "", options, false), "host_not_allowed");
  EXPECT_EQ(code_of("llm.example", "", options, false), "");
  EXPECT_EQ(code_of("127.0.0.1:30000", "", options, false), "") << "a health check on the machine";
}

TEST(HttpGuard, ForeignOriginsAreNamedOrRefused) {
  EXPECT_EQ(code_of("localhost:30000", "http://localhost:30000"), "") << "the server's own page";
  EXPECT_EQ(code_of("localhost", "http://localhost:80"), "");
  EXPECT_EQ(code_of("llm.example", "https://LLM.example", {}, false), "") << "behind a proxy that ends TLS";
  for (const char* origin : {"http://evil.example", "http://localhost:30001", "http://localhost", "null", "x",
                             "http://localhost:30000.evil.example", "http://127.0.0.1:30000"}) {
    EXPECT_EQ(code_of("localhost:30000", origin), "origin_not_allowed") << origin;
    EXPECT_EQ(code_of("localhost:30000", origin, {.cors_origins = {origin}}), "") << origin;
    EXPECT_EQ(code_of("localhost:30000", origin, {.cors_origins = {"*"}}), "") << origin;
    EXPECT_EQ(code_of("localhost:30000", origin, {.cors_origins = {"http://a.example"}}), "origin_not_allowed");
  }
  EXPECT_EQ(code_of("rebound.example", "http://rebound.example"), "host_not_allowed") << "the same origin, rebound";
}

TEST(HttpGuard, OriginsMatchInAnyCase) {
  EXPECT_EQ(code_of("localhost", "https://app.example", {.cors_origins = {"HTTPS://App.example"}}), "");
  EXPECT_EQ(code_of("localhost", "https://app.example", {.cors_origins = {"https://app.example:8443"}}),
            "origin_not_allowed");
  EXPECT_FALSE(is_named_origin("", {"https://app.example"}));
}

TEST(HttpGuard, EntriesThatNoRequestCanMatchAreErrors) {
  for (const char* origin :
       {"*", "null", "https://app.example", "http://localhost:5173", "http://[::1]:80", "chrome-extension://abc"}) {
    EXPECT_TRUE(check_origin(origin).ok()) << origin;
  }
  for (const char* origin : {"", "app.example", "https://app.example/", "https://app.example/page", "https://*.example",
                             "https://", "://app.example", "https://a.example,https://b.example", "https://a b"}) {
    EXPECT_THAT(check_origin(origin).message(),
                HasSubstr("\"" + std::string(origin) + "\" is no origin; accepted are \"*\""))
        << origin;
  }
  for (const char* host : {"*", "llm.example", "llm.example:8443", "*.llm.example", "10.0.0.7", "[::1]:30000"})
    EXPECT_TRUE(check_allowed_host(host).ok()) << host;
  for (const char* host : {"", "http://llm.example", "llm.example/", "llm.*", "*llm.example", "*.", " llm.example"})
    EXPECT_THAT(check_allowed_host(host).message(), HasSubstr("is no host name; accepted are \"*\"")) << host;
}

TEST(HttpGuard, RefusalsSayWhatToSet) {
  HttpRequest request;
  EXPECT_THAT(check_sender(request, "a\xff.example", {}, true)->message,
              HasSubstr("--allowed-hosts \"a\xef\xbf\xbd.example\""));
  request.headers.emplace_back("Origin", "http://b.example");
  EXPECT_THAT(check_sender(request, "localhost", {}, true)->message,
              HasSubstr("--cors-allow-origins \"http://b.example\""));
}

}  // namespace
}  // namespace tessera
