// Catches: HTTP headers for the OpenTelemetry collector that are cut or joined wrongly; an error that shows a header's
// value, which may be a secret key.
#include "tessera/cli/serve/trace_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

Environment of(const std::map<std::string, std::string>& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(TraceEnvironment, GivesNameAndHeaders) {
  const std::map<std::string, std::string> variables = {
      {"OTEL_SERVICE_NAME", "chat"}, {"OTEL_EXPORTER_OTLP_HEADERS", " authorization = Bearer%20a=b , x-team=1,"}};
  TraceOptions traces;
  ASSERT_TRUE(take_trace_environment(of(variables), traces).ok());
  EXPECT_EQ(traces.service, "chat");
  EXPECT_THAT(traces.headers, ElementsAre(Pair("authorization", "Bearer a=b"), Pair("x-team", "1")));
}

TEST(TraceEnvironment, TheVariableOfTracesCountsFirst) {
  const std::map<std::string, std::string> variables = {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1"},
                                                        {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2"}};
  TraceOptions traces;
  ASSERT_TRUE(take_trace_environment(of(variables), traces).ok());
  EXPECT_EQ(traces.service, "tessera");
  EXPECT_THAT(traces.headers, ElementsAre(Pair("b", "2")));
}

TEST(TraceEnvironment, ABadHeaderIsNamedWithoutItsValue) {
  for (const char* wrong : {"secret", "a=1,=secret", "a=secret%0d%0ab", "a b=secret"}) {
    const std::map<std::string, std::string> variables = {{"OTEL_EXPORTER_OTLP_HEADERS", wrong}};
    TraceOptions traces;
    const Status taken = take_trace_environment(of(variables), traces);
    ASSERT_FALSE(taken.ok()) << wrong;
    EXPECT_THAT(taken.message(), HasSubstr("OTEL_EXPORTER_OTLP_HEADERS: header"));
    EXPECT_THAT(taken.message(), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace tessera::cli
