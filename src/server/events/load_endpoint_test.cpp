// Tests the choice of the ports at which a server publishes the loads of its engines. Catches: ports that gateways
// cannot learn from /server_info; ports that overlap other ports of the server; and ports that differ from SGLang's.
#include "tessera/server/events/load_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KvEventsOptions events_at(std::string endpoint, std::string replay = "") {
  return {.enabled = true, .endpoint = std::move(endpoint), .replay_endpoint = std::move(replay)};
}

std::string endpoint_for(std::string_view text, const KvEventsOptions& events, int engines = 1) {
  const Result<std::string> made = load_endpoint(text, events, engines);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : "";
}

std::string load_endpoint_error(std::string_view text, const KvEventsOptions& events, int engines = 1) {
  const Result<std::string> made = load_endpoint(text, events, engines);
  EXPECT_FALSE(made.ok()) << *made;
  return made.ok() ? "" : made.status().message();
}

TEST(LoadEndpoint, NothingIsPublishedUnlessAskedFor) {
  EXPECT_EQ(endpoint_for("", events_at("tcp://*:5557")), "");
  EXPECT_EQ(endpoint_for("off", events_at("tcp://*:5557")), "");
  EXPECT_EQ(endpoint_for("", {}), "");
}

TEST(LoadEndpoint, AutoTakesThePortsAfterTheEvents) {
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://*:5557")), "tcp://*:5558");
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://*:5557"), 4), "tcp://*:5561");
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://[::]:5557")), "tcp://[::]:5558");
}

TEST(LoadEndpoint, AutoLeavesOutThePortsOfReplays) {
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://*:5557", "tcp://*:5558")), "tcp://*:5559");
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://*:5557", "tcp://*:5562"), 4), "tcp://*:5566");
  EXPECT_EQ(endpoint_for("auto", events_at("tcp://*:5557", "tcp://*:7000"), 4), "tcp://*:5561");
}

TEST(LoadEndpoint, AnAddressIsTakenAsItIs) {
  EXPECT_EQ(endpoint_for("tcp://*:6000", events_at("tcp://*:5557"), 2), "tcp://*:6000");
  EXPECT_EQ(endpoint_for("tcp://127.0.0.1:6000", events_at("tcp://gateway:5557")), "tcp://127.0.0.1:6000");
}

TEST(LoadEndpoint, WithoutEventsItIsRefused) {
  EXPECT_THAT(load_endpoint_error("auto", {}), HasSubstr("--kv-events-config"));
  EXPECT_THAT(load_endpoint_error("tcp://*:6000", events_at("ipc:///tmp/a")), HasSubstr("ipc:///tmp/a"));
  EXPECT_THAT(load_endpoint_error("auto", events_at("ipc:///tmp/a")), HasSubstr("ipc:///tmp/a"));
  EXPECT_THAT(load_endpoint_error("auto", events_at("tcp://gateway:5557")), HasSubstr("tcp://gateway:5557"));
}

TEST(LoadEndpoint, WrongValuesAreNamed) {
  for (const char* wrong : {"on", "AUTO", "*:6000", "ipc:///tmp/a", "tcp://*", "tcp://*:0"})
    EXPECT_THAT(load_endpoint_error(wrong, events_at("tcp://*:5557")),
                AllOf(HasSubstr(wrong), HasSubstr("off, auto and tcp://")));
}

TEST(LoadEndpoint, OverlappingPortsAreRefused) {
  EXPECT_THAT(load_endpoint_error("tcp://*:5557", events_at("tcp://*:5557")), HasSubstr("overlap"));
  EXPECT_THAT(load_endpoint_error("tcp://*:5558", events_at("tcp://*:5557"), 2), HasSubstr("5558 to 5559 overlap"));
  EXPECT_THAT(load_endpoint_error("tcp://*:6001", events_at("tcp://*:5557", "tcp://*:6000"), 2),
              HasSubstr("tcp://*:6000"));
  EXPECT_EQ(endpoint_for("tcp://*:5559", events_at("tcp://*:5557"), 2), "tcp://*:5559");
}

TEST(LoadEndpoint, PortsBeyondTheLargestAreRefused) {
  EXPECT_THAT(load_endpoint_error("auto", events_at("tcp://*:65535")), HasSubstr("at most 65535"));
  EXPECT_THAT(load_endpoint_error("tcp://*:65535", events_at("tcp://*:5557"), 2), HasSubstr("65535 to 65536"));
}

}  // namespace
}  // namespace tessera
