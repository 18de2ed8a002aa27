// Catches: a header that is read wrongly, so that a trace is broken; spans that are made although the client does not
// record its trace; and JSON that a collector would refuse.
#include "tessera/server/trace/request_span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/json.h"

namespace tessera {
namespace {

using ::testing::SizeIs;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00f067aa0ba902b7";

std::string header(const std::string& flags = "01", const std::string& version = "00") {
  return version + "-" + kTrace + "-" + kParent + "-" + flags;
}

TEST(TraceParent, IsReadAsTheStandardSays) {
  const std::optional<TraceParent> parent = read_trace_parent(header());
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->span_id, kParent);
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(read_trace_parent(header("00"))->sampled);
  EXPECT_TRUE(read_trace_parent(header("0b"))->sampled);
  EXPECT_TRUE(read_trace_parent(header("01", "01") + "-more").has_value()) << "a later version";
  std::string upper = header();
  upper[4] = 'B';
  for (const std::string& wrong :
       {std::string(), header("01", "ff"), header() + "-more", header("0"), header("0g"), upper,
        "00-" + std::string(32, '0') + "-" + kParent + "-01",
        "00-" + std::string(kTrace) + "-" + std::string(16, '0') + "-01", header().replace(2, 1, "_")})
    EXPECT_FALSE(read_trace_parent(wrong).has_value()) << wrong;
}

TEST(TraceParent, AnAnswerNamesTheSpanOfItsRequest) {
  FinishedRequest request{.method = "POST", .path = "/v1/completions", .status = 200};
  request.generation.trace_parent = header();
  request.generation.trace_answer = answer_trace_parent(header());
  const std::optional<TraceParent> answered = read_trace_parent(request.generation.trace_answer);
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->trace_id, kTrace);
  EXPECT_NE(answered->span_id, kParent);
  EXPECT_EQ(make_request_span(request, 1)->span_id, answered->span_id);
  EXPECT_FALSE(read_trace_parent(answer_trace_parent(header("00")))->sampled);
  EXPECT_EQ(answer_trace_parent("malformed"), "");
}

FinishedRequest chat() {
  FinishedRequest request{.method = "POST", .path = "/v1/chat/completions", .address = "127.0.0.1", .status = 200};
  request.seconds = 0.5;
  request.generation = {.id = "chatcmpl-1", .tokens = {{.prompt = 5, .cached = 4, .completion = 3}}, .finish = "stop"};
  request.generation.asked = {.texts = 1, .generates = true, .max_tokens = 9, .temperature = 0.25, .top_p = 1};
  request.generation.queue_s = 0.125;
  request.generation.first_token_s = 0.25;
  request.generation.engine_s = 0.4375;
  request.generation.route = "/v1/chat/completions";
  return request;
}

TEST(RequestSpan, TheClientDecidesWhetherItIsRecorded) {
  FinishedRequest request = chat();
  const std::optional<TraceSpan> own = make_request_span(request, 1'000'000'000);
  ASSERT_TRUE(own.has_value());
  EXPECT_THAT(own->trace_id, SizeIs(32));
  EXPECT_THAT(own->span_id, SizeIs(16));
  EXPECT_EQ(own->parent_id, "");
  EXPECT_EQ(own->start_ns, 500'000'000);
  request.generation.trace_parent = header();
  const std::optional<TraceSpan> child = make_request_span(request, 1);
  ASSERT_TRUE(child.has_value());
  EXPECT_EQ(child->trace_id, kTrace);
  EXPECT_EQ(child->parent_id, kParent);
  request.generation.trace_parent = header("00");
  EXPECT_FALSE(make_request_span(request, 1).has_value()) << "the client does not record";
  request.generation = {};
  EXPECT_FALSE(make_request_span(request, 1).has_value()) << "the model did not run";
  request.generation.trace_parent = header();
  EXPECT_TRUE(make_request_span(request, 1).has_value()) << "a refused request of a traced client";
}

// Returns the value of the attribute `key` as text: "chat", "5" or "0.25".
std::string attribute(const Json& span, const std::string& key) {
  for (const Json& each : span.find("attributes")->as_array()) {
    if (*each.find("key") != Json(key)) continue;
    const Json& value = each.find("value")->as_object().front().second;
    return value.is_string() ? value.as_string() : value.dump();
  }
  return "(none)";
}

TEST(RequestSpan, JsonHasIdsTimesAndAttributes) {
  FinishedRequest request = chat();
  request.generation.trace_parent = header();
  const TraceSpan span = *make_request_span(request, 1'700'000'000'000'000'001);
  const Result<Json> json = Json::parse(spans_json({&span, 1}, "service", "demo"), "spans");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& resource = json->find("resourceSpans")->as_array()[0];
  EXPECT_EQ(attribute(*resource.find("resource"), "service.name"), "service");
  const Json& sent = resource.find("scopeSpans")->as_array()[0].find("spans")->as_array()[0];
  EXPECT_EQ(*sent.find("traceId"), Json(kTrace));
  EXPECT_EQ(*sent.find("parentSpanId"), Json(kParent));
  EXPECT_EQ(*sent.find("name"), Json("llm_request"));
  EXPECT_EQ(*sent.find("kind"), Json(2));
  EXPECT_EQ(*sent.find("endTimeUnixNano"), Json("1700000000000000001")) << "integers of 64 bits are texts";
  EXPECT_EQ(sent.find("status")->dump(), "{}");
  EXPECT_EQ(attribute(sent, "gen_ai.operation.name"), "chat");
  EXPECT_EQ(attribute(sent, "gen_ai.response.model"), "demo");
  EXPECT_EQ(attribute(sent, "gen_ai.request.max_tokens"), "9");
  EXPECT_EQ(attribute(sent, "gen_ai.request.temperature"), "0.25");
  EXPECT_EQ(attribute(sent, "gen_ai.usage.prompt_tokens"), "5");
  EXPECT_EQ(attribute(sent, "gen_ai.usage.completion_tokens"), "3");
  EXPECT_EQ(attribute(sent, "gen_ai.latency.time_in_model_prefill"), "0.125");
  EXPECT_EQ(attribute(sent, "gen_ai.latency.time_in_model_decode"), "0.1875");
  EXPECT_EQ(attribute(sent, "http.response.status_code"), "200");
}

TEST(RequestSpan, AFailureIsAnError) {
  FinishedRequest request = chat();
  request.generation.finish = "error";
  const TraceSpan span = *make_request_span(request, 1);
  EXPECT_THAT(spans_json({&span, 1}, "s", "m"), ::testing::HasSubstr(R"("status":{"code":2})"));
}

}  // namespace
}  // namespace tessera
