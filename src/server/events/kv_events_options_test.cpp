// Catches: options that are misread or silently ignored, and errors that do not say what is wrong and what is accepted.
#include "tessera/server/events/kv_events_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/events/kv_events.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KvEventsOptions read_config(std::string_view text) {
  const Result<KvEventsOptions> options = parse_kv_events_config(text);
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  return options.ok() ? *options : KvEventsOptions{};
}

std::string config_error(std::string_view text) {
  const Result<KvEventsOptions> options = parse_kv_events_config(text);
  EXPECT_FALSE(options.ok()) << text;
  return options.ok() ? "" : options.status().message();
}

TEST(KvEventsConfig, ReadsAllKeys) {
  const KvEventsOptions options = read_config(
      R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:6000", "bind": true,
          "replay_endpoint": "tcp://[::1]:6001", "topic": "kv@pod@model", "buffer_steps": 5, "hwm": 6,
          "max_queue_size": 7, "format": "dynamo"})");
  EXPECT_TRUE(options.enabled);
  EXPECT_EQ(options.endpoint, "tcp://127.0.0.1:6000");
  EXPECT_TRUE(options.listens());
  EXPECT_EQ(options.replay_endpoint, "tcp://[::1]:6001");
  EXPECT_EQ(options.topic, "kv@pod@model");
  EXPECT_EQ(options.buffer_steps, 5);
  EXPECT_EQ(options.hwm, 6);
  EXPECT_EQ(options.max_queue_size, 7);
}

TEST(KvEventsConfig, VllmsAndSglangsSwitchesTurnEventsOn) {
  EXPECT_TRUE(read_config(R"({"enable_kv_cache_events": true})").enabled);
  EXPECT_TRUE(read_config(R"({"publisher": "zmq"})").enabled);
  EXPECT_TRUE(read_config(R"({"publisher": "zmq", "replay_endpoint": null})").enabled);
  EXPECT_FALSE(read_config("{}").enabled);
  EXPECT_FALSE(read_config(R"({"publisher": "zmq", "enable_kv_cache_events": false})").enabled);
  EXPECT_FALSE(read_config(R"({"publisher": "null", "enable_kv_cache_events": true})").enabled);
}

TEST(KvEventsConfig, ListensAtAddressesOfAllNetworks) {
  for (const char* all : {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "ipc:///tmp/a"})
    EXPECT_TRUE(KvEventsOptions{.endpoint = all}.listens()) << all;
  EXPECT_FALSE(KvEventsOptions{.endpoint = "tcp://gateway:1"}.listens()) << "a subscriber listens there";
  EXPECT_FALSE((KvEventsOptions{.endpoint = "tcp://*:1", .bind = false}.listens()));
}

TEST(KvEventsConfig, EachEngineHasItsOwnEndpoint) {
  EXPECT_EQ(endpoint_of("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(endpoint_of("tcp://[::1]:5557", 2), "tcp://[::1]:5559");
  EXPECT_EQ(endpoint_of("ipc:///tmp/a", 1), "ipc:///tmp/a_dp1");
  EXPECT_EQ(endpoint_of("", 1), "");
}

TEST(KvEventsConfig, PortsOfAllEnginesMustExist) {
  const std::string last = "tcp://127.0.0.1:65534";
  EXPECT_TRUE(check_ports(tcp_address(last), 2).ok());
  EXPECT_TRUE(check_ports(tcp_address("ipc:///tmp/a"), 9).ok());
  const Status endpoint = check_kv_events({.enabled = true, .endpoint = last}, 3);
  EXPECT_EQ(endpoint.message(),
            "\"endpoint\": 3 engines need the ports 65534 to 65536; accepted: ports of at most 65535");
  const Status replays = check_kv_events({.enabled = true, .endpoint = "tcp://a:1", .replay_endpoint = last}, 3);
  EXPECT_THAT(replays.message(), HasSubstr("\"replay_endpoint\": 3 engines need the ports 65534 to 65536"));
  EXPECT_EQ(replays.code(), StatusCode::kInvalidArgument);
}

TEST(KvEventsConfig, AddressesHaveHostAndPort) {
  const std::optional<TcpAddress> address = tcp_address("tcp://[::1]:5557");
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->host, "[::1]");
  EXPECT_EQ(address->port, 5557);
  EXPECT_FALSE(tcp_address("ipc:///tmp/a").has_value());
  EXPECT_FALSE(tcp_address("").has_value());
}

TEST(KvEventsConfig, RefusesWrongValuesByName) {
  EXPECT_THAT(config_error("{"), HasSubstr("the value"));
  EXPECT_THAT(config_error("[]"), AllOf(HasSubstr("[] is not a JSON object"), HasSubstr("\"publisher\": \"zmq\"")));
  EXPECT_THAT(config_error(R"({"port": 1})"), AllOf(HasSubstr("unknown key \"port\""), HasSubstr("replay_endpoint")));
  EXPECT_THAT(config_error(R"({"publisher": "nats"})"),
              AllOf(HasSubstr("\"nats\""), HasSubstr("\"zmq\" and \"null\"")));
  EXPECT_THAT(config_error(R"({"publisher": 3})"), HasSubstr("\"publisher\": 3 is not accepted"));
  EXPECT_THAT(config_error(R"({"enable_kv_cache_events": "yes"})"), HasSubstr("accepted: true and false"));
  EXPECT_THAT(config_error(R"({"topic": 1})"), HasSubstr("\"topic\": 1 is not accepted; accepted: a string"));
  EXPECT_THAT(config_error(R"({"hwm": 0})"), HasSubstr("\"hwm\": 0 is not accepted; accepted: integers from 1"));
  EXPECT_THAT(config_error(R"({"buffer_steps": -1})"), HasSubstr("integers from 0"));
  EXPECT_THAT(config_error(R"({"max_queue_size": 1.5})"), HasSubstr("\"max_queue_size\": 1.5"));
  EXPECT_THAT(config_error(R"({"format": "other"})"), HasSubstr("\"default\" and \"dynamo\""));
  EXPECT_THAT(config_error(R"({"publisher": "zmq", "endpoint": "tcp://*:1", "replay_endpoint": "tcp://*:1"})"),
              HasSubstr("is also the \"endpoint\""));
}

TEST(KvEventsConfig, RefusesImpossibleEndpoints) {
  for (const std::string wrong :
       {"", "*:5557", "tcp://", "tcp://*", "tcp://:5557", "tcp://*:0", "tcp://*:65536", "tcp://*:x", "tcp://::1:5557",
        "udp://*:5557", "inproc://cache", "ipc://", "tcp://a b:1"}) {
    for (const std::string key : {"endpoint", "replay_endpoint"}) {
      EXPECT_THAT(config_error("{\"" + key + "\": \"" + wrong + "\"}"),
                  AllOf(HasSubstr("\"" + key + "\": \"" + wrong + "\""), HasSubstr("tcp://HOST:PORT")));
    }
  }
  EXPECT_THAT(config_error("{\"endpoint\": \"ipc:///" + std::string(100, 'a') + "\"}"), HasSubstr("at most 100"));
}

}  // namespace
}  // namespace tessera
