// Tests the trace spans of OpenAI batches. Catches: requests of batches that have no span, or whose span does not
// belong to the span of their batch; a batch whose trace breaks off when the server starts again; and spans that are
// made although the client does not record its trace.
#include "tessera/server/batches/batch_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tessera/server/batches/batch_test_util.h"
#include "tessera/server/trace/test_collector.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kClientTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kClientSpan = "00f067aa0ba902b7";
constexpr const char* kDigits = "0123456789abcdef0123456789abcdef";

std::string traceparent(const std::string& flags) {
  return std::string("00-") + kClientTrace + "-" + kClientSpan + "-" + flags;
}

Batch batch_of(const std::string& trace_parent) {
  Batch batch{.id = std::string("batch_") + kDigits, .endpoint = "/v1/completions"};
  batch.created_at = 5;
  batch.trace_parent = trace_parent;
  return batch;
}

TEST(BatchSpans, RequestsAreChildrenOfTheBatchsSpan) {
  const Batch batch = batch_of("");
  const std::optional<TraceSpan> whole = make_batch_span(batch, 9'000'000'000);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->trace_id, kDigits);
  EXPECT_EQ(whole->parent_id, "");
  EXPECT_EQ(whole->start_ns, 5'000'000'000);
  EXPECT_FALSE(whole->cause.has_value());
  const std::optional<TraceSpan> line = make_line_span(batch, "a", {.status = 400, .seconds = 0.5}, 1'000'000'000);
  ASSERT_TRUE(line.has_value()) << "also of a request that the model did not run";
  EXPECT_EQ(line->trace_id, whole->trace_id);
  EXPECT_EQ(line->parent_id, whole->span_id);
  EXPECT_NE(line->span_id, whole->span_id);
  EXPECT_EQ(line->start_ns, 500'000'000);
}

TEST(BatchSpans, TheClientDecidesWhetherThereAreAny) {
  EXPECT_FALSE(make_batch_span(batch_of(traceparent("00")), 1).has_value());
  EXPECT_FALSE(make_line_span(batch_of(traceparent("00")), "a", {}, 1).has_value());
  const std::optional<TraceSpan> linked = make_batch_span(batch_of(traceparent("01")), 1);
  ASSERT_TRUE(linked.has_value() && linked->cause.has_value());
  EXPECT_EQ(linked->cause->trace_id, kClientTrace);
  EXPECT_EQ(linked->cause->span_id, kClientSpan);
  Batch other = batch_of("");
  other.id = "batch_mine";
  EXPECT_FALSE(make_batch_span(other, 1).has_value()) << "collectors would refuse such an id";
}

TEST(BatchSpans, TheClientsSpanIsKeptForTheServerAlone) {
  EXPECT_EQ(kept_trace_parent(traceparent("01")), traceparent("01"));
  EXPECT_EQ(kept_trace_parent("01" + traceparent("01").substr(2) + "-more\xff"), "01" + traceparent("01").substr(2));
  EXPECT_EQ(kept_trace_parent("\xff"), "");
  const Batch batch = batch_of(traceparent("01"));
  EXPECT_THAT(batch.to_json().dump(), Not(HasSubstr(kClientTrace)));
  const Result<Batch> read = read_batch_record(*Json::parse(batch_record(batch), "record"), batch.id);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->trace_parent, traceparent("01"));
}

// Returns the attribute `key` of a span as text, or "(none)" if the span lacks the attribute.
std::string attribute(const Json& span, const std::string& key) {
  for (const Json& each : span.find("attributes")->as_array()) {
    if (*each.find("key") == Json(key)) return each.find("value")->as_object().front().second.as_string();
  }
  return "(none)";
}

class BatchSpansTest : public BatchServerTest {
 protected:
  ServerOptions traced() const {
    ServerOptions with = options();
    with.traces.endpoint = collector_.url();
    return with;
  }
  // Returns the spans that the collector got with this name.
  std::vector<Json> spans(const std::string& name) const {
    std::vector<Json> found;
    for (const std::string& body : collector_.bodies()) {
      const Json sent = *Json::parse(body, "spans");
      for (const Json& span :
           sent.find("resourceSpans")->as_array()[0].find("scopeSpans")->as_array()[0].find("spans")->as_array())
        if (text_in(span, "name") == name) found.push_back(span);
    }
    return found;
  }

  Collector collector_;
};

TEST_F(BatchSpansTest, ABatchHasASpanAndEachRequestToo) {
  {
    const Running running(engine(), traced());
    const std::string file = put(running, short_line("a", 3) + request_line("b", R"("prompt": 5.5)") + short_line("c"));
    const Json begun = running.json(with_line(begin(file), "traceparent: " + traceparent("01")));
    ended(running, text_in(begun, "id"));
  }
  const std::vector<Json> batches = spans("batch");
  ASSERT_THAT(batches, SizeIs(1));
  const Json& batch = batches.front();
  EXPECT_EQ(attribute(batch, "tessera.batch.status"), "completed");
  EXPECT_EQ(attribute(batch, "tessera.batch.requests.completed"), "2");
  EXPECT_EQ(attribute(batch, "tessera.batch.requests.failed"), "1");
  EXPECT_EQ(attribute(batch, "gen_ai.usage.output_tokens"), "5");
  EXPECT_EQ("batch_" + text_in(batch, "traceId"), attribute(batch, "tessera.batch.id"));
  EXPECT_EQ(batch.find("links")->dump(),
            std::string(R"([{"traceId": ")") + kClientTrace + R"(", "spanId": ")" + kClientSpan + R"("}])");
  const std::vector<Json> answered = spans("llm_request");
  ASSERT_THAT(answered, SizeIs(2));
  for (const Json& span : answered) {
    EXPECT_EQ(text_in(span, "traceId"), text_in(batch, "traceId"));
    EXPECT_EQ(text_in(span, "parentSpanId"), text_in(batch, "spanId"));
    EXPECT_EQ(attribute(span, "gen_ai.usage.output_tokens"),
              attribute(span, "tessera.batch.custom_id") == "a" ? "3" : "2");
    EXPECT_EQ(attribute(span, "gen_ai.operation.name"), "text_completion");
    EXPECT_LE(std::stoll(text_in(batch, "startTimeUnixNano")), std::stoll(text_in(span, "startTimeUnixNano")));
    EXPECT_GE(std::stoll(text_in(batch, "endTimeUnixNano")), std::stoll(text_in(span, "endTimeUnixNano")));
  }
  bool refused = false;
  for (const Json& span : spans("POST /v1/completions"))
    refused = refused || (attribute(span, "tessera.batch.custom_id") == "b" &&
                          attribute(span, "http.response.status_code") == "400");
  EXPECT_TRUE(refused);
}

TEST_F(BatchSpansTest, ARestartContinuesTheTrace) {
  std::string content;
  for (int i = 0; i < 40; ++i) content += short_line("r" + std::to_string(i), 20);
  std::string id;
  {
    const Running running(engine(), traced());
    id = text_in(running.json(begin(put(running, content))), "id");
    EXPECT_TRUE(eventually([&] { return counted(get_batch(running, id), "completed") > 0; }));
  }
  EXPECT_THAT(spans("batch"), SizeIs(0)) << "the batch has not ended";
  {
    const Running running(engine(), traced());
    EXPECT_EQ(text_in(ended(running, id), "status"), "completed");
  }
  const std::vector<Json> batches = spans("batch");
  ASSERT_THAT(batches, SizeIs(1));
  std::set<std::string> seen;
  for (const Json& span : spans("llm_request")) {
    EXPECT_EQ(text_in(span, "parentSpanId"), text_in(batches.front(), "spanId"));
    EXPECT_TRUE(seen.insert(attribute(span, "tessera.batch.custom_id")).second) << "twice";
  }
  EXPECT_THAT(seen, SizeIs(40));
}

}  // namespace
}  // namespace tessera::testing
