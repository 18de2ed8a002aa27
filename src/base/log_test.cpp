// Catches: a topic's level that is overwritten or applied too late; unknown topics or levels that are accepted; topics
// that are listed twice; a function given to set_log_wording() that is not applied; logged text that starts a new line.
#include "tessera/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Log, ATopicsOwnLevelIsKept) {
  ASSERT_TRUE(set_log_level("dispatch=debug").ok());
  ASSERT_TRUE(set_log_level("capture=off").ok());
  ASSERT_TRUE(set_log_level("warn").ok());
  EXPECT_TRUE(log_enabled("dispatch", LogLevel::kDebug));
  EXPECT_FALSE(log_enabled("capture", LogLevel::kError));
  EXPECT_TRUE(log_enabled("server", LogLevel::kWarn));
  EXPECT_FALSE(log_enabled("server", LogLevel::kInfo));
  ASSERT_TRUE(set_log_level("info").ok());
  EXPECT_TRUE(log_enabled("server", LogLevel::kInfo));
  EXPECT_FALSE(log_enabled("capture", LogLevel::kError));
}

TEST(Log, WarningIsAnotherNameOfWarn) {
  ASSERT_TRUE(set_log_level("server=warning").ok());
  EXPECT_TRUE(log_enabled("server", LogLevel::kWarn));
  EXPECT_FALSE(log_enabled("server", LogLevel::kInfo));
  ASSERT_TRUE(set_log_level("server=info").ok());
}

TEST(Log, UnknownTopicsAndLevelsListTheKnownOnes) {
  const Status topic = set_log_level("dispach=debug");
  EXPECT_EQ(topic.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(topic.message(), HasSubstr("\"dispach\""));
  for (const LogTopicName& known : kLogTopics) EXPECT_THAT(topic.message(), HasSubstr(known.name));
  const Status level = set_log_level("dispatch=loud");
  EXPECT_THAT(level.message(), HasSubstr("dispatch=loud"));
  EXPECT_THAT(level.message(), HasSubstr("debug, info, warn, error, off"));
  EXPECT_FALSE(set_log_level("").ok());
  EXPECT_FALSE(set_log_level("=debug").ok());
}

TEST(Log, TopicsAreSortedAndUnique) {
  std::string_view last;
  for (const LogTopicName& topic : kLogTopics) {
    EXPECT_LT(last, topic.name);
    EXPECT_FALSE(topic.lines.empty());
    last = topic.name;
  }
}

TEST(Log, TextInALineCannotBeginAnother) {
  ASSERT_TRUE(set_log_level("server=warn").ok());
  ::testing::internal::CaptureStderr();
  log_warn("server", "{}", "a\n[00:00:00.000] I server: b\r\x1b[31m\x7f \xc3\xa4\t");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::EndsWith("server: a\\n[00:00:00.000] I server: b\\x0d\\x1b[31m\\x7f \xc3\xa4\\x09\n"));
}

TEST(Log, LinesAreWrittenInTheProgramsWording) {
  ASSERT_TRUE(set_log_level("memory=warn").ok());
  const auto written = [] {
    ::testing::internal::CaptureStderr();
    log_warn("memory", "lower {}", "mem_fraction_static");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(written(), HasSubstr("memory: lower mem_fraction_static\n"));
  set_log_wording([](std::string_view line) { return std::string(line) + ", please"; });
  EXPECT_THAT(written(), HasSubstr("memory: lower mem_fraction_static, please\n"));
  set_log_wording({});
  EXPECT_THAT(written(), HasSubstr("memory: lower mem_fraction_static\n"));
}

}  // namespace
}  // namespace tessera
