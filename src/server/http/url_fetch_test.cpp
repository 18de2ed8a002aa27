// Catches: a way to make the server connect to itself or its own network (by an address in any notation, a host name, a
// redirect, or a proxy set in an environment variable); and a body size, a waiting time or a number of redirects that
// has no limit.
#include "tessera/server/http/url_fetch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "tessera/server/http/http_test_util.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Allows all IPv4 addresses with this port, so that a server on 127.0.0.1 can stand for a site of the internet.
std::function<bool(const sockaddr&)> only(std::uint16_t port) {
  return [port](const sockaddr& address) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    return address.sa_family == AF_INET && ntohs(in.sin_port) == port;
  };
}

UrlFetcher fetcher(UrlFetchOptions options) { return *UrlFetcher::create(std::move(options)); }

std::string url(std::uint16_t port, const std::string& path) {
  return fmt::format("http://127.0.0.1:{}{}", port, path);
}

void expect_refused(const UrlFetcher& fetch, const std::string& address, const std::string& message) {
  SCOPED_TRACE(address);
  const Result<std::string> got = fetch.get(address);
  ASSERT_FALSE(got.ok()) << *got;
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(), HasSubstr(message));
}

// A fixture with two servers: `outer_` stands for a site of the internet, and `inner_` for a server that must not be
// reached. The fixture counts the requests to each server.
class UrlFetch : public ::testing::Test {
 protected:
  void answer(const HttpExchange& exchange) {
    const std::string& path = exchange.request().path;
    ++asked_;
    if (path == "/image") return exchange.respond({.content_type = "image/png", .body = "bytes"});
    if (path == "/relative") return redirect(exchange, "/image");
    if (path == "/around") return redirect(exchange, "/around");
    if (path == "/inside") return redirect(exchange, url(inner_.port(), "/"));
    if (path == "/file") return redirect(exchange, "file:///etc/passwd");
    if (path == "/large") return exchange.respond({.body = std::string(2000, 'x')});
    if (path == "/stream") {
      exchange.start_stream({.body = std::string(600, 'x')});
      exchange.write(std::string(600, 'x'));
      return exchange.finish();
    }
    if (path == "/slow") return held_.hold(exchange);
    exchange.respond({.status = 404});
  }
  static void redirect(const HttpExchange& exchange, const std::string& to) {
    exchange.respond({.status = 302, .headers = {{"Location", to}}});
  }

  UrlFetchOptions options() const { return {.most_bytes = 1000, .timeout_s = 10, .may_connect = only(outer_.port())}; }

  std::atomic<int> asked_ = 0;
  std::atomic<int> inner_asked_ = 0;
  testing::Held held_;
  testing::TestServer inner_{[this](const HttpExchange& exchange) {
    ++inner_asked_;
    exchange.respond({.body = "secret"});
  }};
  testing::TestServer outer_{[this](const HttpExchange& exchange) { answer(exchange); }};
};

TEST_F(UrlFetch, RedirectedBodiesAreFetched) {
  const UrlFetcher fetch = fetcher(options());
  for (const char* path : {"/image", "/relative"}) {
    const Result<std::string> got = fetch.get(url(outer_.port(), path));
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(*got, "bytes");
  }
  expect_refused(fetch, url(outer_.port(), "/none"), "answers with status 404");
}

TEST_F(UrlFetch, AddressesOfTheServersNetworkAreRefused) {
  UrlFetchOptions as_served;
  const UrlFetcher fetch = fetcher(std::move(as_served));
  const std::uint16_t port = inner_.port();
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1",
                           "017700000001", "127.1"})
    expect_refused(fetch, fmt::format("http://{}:{}/image", host, port), "is not a public host");
  expect_refused(fetch, "http://169.254.169.254/latest/meta-data/", "is not a public host");
  EXPECT_EQ(inner_asked_, 0);
}

TEST_F(UrlFetch, RedirectsAreCheckedLikeTheFirstAddress) {
  const UrlFetcher fetch = fetcher(options());
  expect_refused(fetch, url(outer_.port(), "/inside"), "is not a public host");
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(inner_asked_, 0);
  expect_refused(fetch, url(outer_.port(), "/file"), "has a scheme that is not supported");
  expect_refused(fetch, url(outer_.port(), "/around"), "up to 5 redirects");
}

TEST_F(UrlFetch, ProxiesOfTheEnvironmentAreIgnored) {
  const std::string proxy = fmt::format("http://127.0.0.1:{}", inner_.port());
  ::setenv("http_proxy", proxy.c_str(), 1);
  const Result<std::string> got = fetcher(options()).get(url(outer_.port(), "/image"));
  ::unsetenv("http_proxy");
  EXPECT_TRUE(got.ok());
  EXPECT_EQ(inner_asked_, 0);
}

TEST_F(UrlFetch, AcceptsOnlyHttpWithoutCredentials) {
  const UrlFetcher fetch = fetcher(options());
  expect_refused(fetch, "ftp://127.0.0.1/image", "has a scheme that is not supported");
  expect_refused(fetch, "file:///etc/passwd", "has a scheme that is not supported");
  expect_refused(fetch, "gopher://127.0.0.1/", "has a scheme that is not supported");
  expect_refused(fetch, "image.png", "is no URL");
  expect_refused(fetch, "http://", "is no URL");
  expect_refused(fetch, "http://me:word@127.0.0.1/image", "has a user name or password");
  EXPECT_EQ(asked_, 0);
}

TEST_F(UrlFetch, LimitsBodies) {
  const UrlFetcher fetch = fetcher(options());
  expect_refused(fetch, url(outer_.port(), "/large"), "more than 1000 bytes");   // the head announces the length
  expect_refused(fetch, url(outer_.port(), "/stream"), "more than 1000 bytes");  // the head announces no length
}

TEST_F(UrlFetch, LimitsWaitsAndReleasesPlaces) {
  UrlFetchOptions hurried = options();
  hurried.timeout_s = 0.1;
  hurried.most_at_once = 1;
  const UrlFetcher fetch = fetcher(std::move(hurried));
  expect_refused(fetch, url(outer_.port(), "/slow"), "did not send the file within 0.1 s");
  expect_refused(fetch, url(outer_.port(), "/slow"), "did not send the file within 0.1 s");
}

TEST_F(UrlFetch, LimitsSimultaneousFetches) {
  UrlFetchOptions narrow = options();
  narrow.most_at_once = 1;
  const UrlFetcher fetch = fetcher(std::move(narrow));
  std::thread first([&] { EXPECT_TRUE(fetch.get(url(outer_.port(), "/slow")).ok()); });
  EXPECT_TRUE(testing::eventually([&] { return held_.taken == 1; }));
  const Result<std::string> second = fetch.get(url(outer_.port(), "/image"));
  outer_.http->post([&] { held_.exchanges[0].respond({.body = "late"}); });
  first.join();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(fetch.get(url(outer_.port(), "/image")).ok());
}

}  // namespace
}  // namespace tessera
