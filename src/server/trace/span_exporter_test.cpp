// Catches: spans that are lost or sent twice while a collector is unreachable; a full queue that delays requests or
// makes them fail; endpoints that are parsed wrongly; and a server whose shutdown waits for a collector.
#include "tessera/server/trace/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/server_test_util.h"
#include "tessera/server/trace/request_span.h"
#include "tessera/server/trace/test_collector.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

TraceSpan span() {
  FinishedRequest request{.method = "POST", .path = "/v1/completions", .status = 200};
  request.generation.id = "cmpl-1";
  return *make_request_span(request, 1);
}

std::unique_ptr<SpanExporter> exporter_to(const std::string& endpoint) {
  Result<std::unique_ptr<SpanExporter>> made =
      SpanExporter::create({.endpoint = endpoint, .service = "here", .headers = {{"x-key", "k"}}}, "demo");
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

TEST(TraceUrl, NeedsASchemeAndGetsAPath) {
  EXPECT_EQ(*trace_url("http://host:4318"), "http://host:4318/v1/traces");
  EXPECT_EQ(*trace_url("https://host/"), "https://host/v1/traces");
  EXPECT_EQ(*trace_url("http://host/otlp/v1/traces"), "http://host/otlp/v1/traces");
  for (const char* wrong : {"localhost:4317", "grpc://host:4317", "", "host"}) {
    const Result<std::string> url = trace_url(wrong);
    ASSERT_FALSE(url.ok()) << wrong;
    EXPECT_THAT(url.status().message(), HasSubstr("http://localhost:4318/v1/traces"));
  }
}

TEST(SpanExporterTest, SpansAreSentTogether) {
  const Collector collector;
  const auto exporter = exporter_to(collector.url());
  for (int i = 0; i < 3; ++i) exporter->add(span());
  EXPECT_TRUE(eventually([&] { return exporter->sent() == 3; }));
  EXPECT_EQ(collector.posts(), 1U);
  EXPECT_EQ(collector.path(), "/v1/traces");
  EXPECT_EQ(collector.key(), "k");
  EXPECT_THAT(trace_metrics(*exporter), HasSubstr("tessera:trace_spans_total{outcome=\"sent\"} 3"));
}

TEST(SpanExporterTest, WhatWaitsIsSentAtTheEnd) {
  const Collector collector;
  auto exporter = exporter_to(collector.url());
  exporter->add(span());
  exporter.reset();
  EXPECT_EQ(collector.posts(), 1U);
}

TEST(SpanExporterTest, ACollectorThatIsBusyIsAskedAgain) {
  Collector collector(503);
  const auto exporter = exporter_to(collector.url());
  exporter->add(span());
  EXPECT_TRUE(eventually([&] { return collector.posts() == 1; }));
  collector.answer_with(200);
  EXPECT_TRUE(eventually([&] { return exporter->sent() == 1; }));
  EXPECT_EQ(exporter->dropped(), 0);
}

TEST(SpanExporterTest, SpansThatACollectorRefusesAreCounted) {
  const Collector collector(400);
  const auto exporter = exporter_to(collector.url());
  exporter->add(span());
  EXPECT_TRUE(eventually([&] { return exporter->dropped() == 1; }));
  EXPECT_EQ(collector.posts(), 1U) << "it would refuse them again";
}

TEST(SpanExporterTest, AFullQueueDropsAndTheEndIsShort) {
  auto exporter = exporter_to("http://127.0.0.1:1");
  for (std::size_t i = 0; i < SpanExporter::kMostWaiting + SpanExporter::kMostSent + 10; ++i) exporter->add(span());
  EXPECT_GE(exporter->dropped(), 10);
  const auto began = std::chrono::steady_clock::now();
  exporter.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

class TracedServer : public ServerTest {};

TEST_F(TracedServer, ARequestIsASpanOfItsClientsTrace) {
  const Collector collector;
  ServerOptions options;
  options.traces.endpoint = collector.url();
  const Running running(engine(), options);
  std::string request = completion(R"("prompt": "Once", "max_tokens": 3, "ignore_eos": true)");
  request.insert(request.find("\r\n") + 2, "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n");
  const Reply reply = running.ask(request);
  const Json answer = *Json::parse(reply.body, "the answer");
  EXPECT_THAT(reply.head, HasSubstr("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-"));
  EXPECT_THAT(running.ask(get("/v1/models")).head, ::testing::Not(HasSubstr("traceparent")));
  ASSERT_TRUE(eventually([&] { return collector.posts() == 1; }));
  const std::string sent = collector.last();
  EXPECT_THAT(sent, HasSubstr("4bf92f3577b34da6a3ce929d0e0e4736"));
  EXPECT_THAT(sent, HasSubstr(reply.head.substr(reply.head.find("traceparent: ") + 49, 16)))
      << "the span of the answer";
  EXPECT_THAT(sent, HasSubstr(answer.find("id")->as_string()));
  EXPECT_THAT(sent, HasSubstr(R"("gen_ai.request.max_tokens","value":{"intValue":"3"})"));
  EXPECT_THAT(sent, HasSubstr(R"("http.route","value":{"stringValue":"/v1/completions"})"));
  EXPECT_THAT(sent, ::testing::Not(HasSubstr("/v1/models")));
  EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("tessera:trace_spans_total"));
}

}  // namespace
}  // namespace tessera::testing
