// Catches: an embedded engine whose cache events reach no subscriber; an address that stays in use after the engine was
// closed; and an address in use that is reported only after the model was loaded.
#include <fmt/format.h>

#include <optional>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/capi/capi_test_util.h"
#include "tessera/server/events/zmq_peer_test_util.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns the options of an engine that publishes its cache events at `endpoint`.
std::string events_at(const std::string& endpoint) {
  return R"(, "page-size": 4, "kv-events-config": "{\"publisher\": \"zmq\", \"bind\": true, \"endpoint\": \")" +
         endpoint + R"(\"}")";
}

// Returns the first message about stored blocks that a subscriber gets after a generation. If the subscriber gets none,
// the result has no frames.
ZmqFrames stored_event(tessera_engine* engine, const std::string& endpoint) {
  ZmqPeer subscriber(ZMQ_SUB, endpoint);
  subscriber.set(ZMQ_RCVTIMEO, 250);
  ZmqFrames event;
  // A subscription takes a moment, so a message about the first prompts may be lost.
  for (int prompt = 0; prompt < 20 && event.empty(); ++prompt) {
    const std::string body = fmt::format(
        R"({{"text": "{} upon a time there was a fox who", "sampling_params": {{"max_new_tokens": 40}}}})", prompt);
    char* answer = nullptr;
    EXPECT_EQ(tessera_ask(engine, "/generate", body.c_str(), &answer, nullptr), TESSERA_OK);
    tessera_free(answer);
    do {
      event = subscriber.receive();
    } while (event.size() == 3 && event[2].find("BlockStored") == std::string::npos);
  }
  return event;
}

TEST(KvEventsOfAnEngine, ReachASubscriberUntilItIsClosed) {
  const std::string endpoint = local_endpoint(free_ports(1));
  for (int time = 0; time < 2; ++time) {  // the second engine uses the first engine's address
    const EnginePtr engine = open_demo(events_at(endpoint));
    ASSERT_NE(engine, nullptr);
    const ZmqFrames event = stored_event(engine.get(), endpoint);
    ASSERT_THAT(event, SizeIs(3));
    EXPECT_THAT(event[2], HasSubstr("BlockStored"));
  }
}

TEST(KvEventsOfAnEngine, AnAddressInUseIsNoticedBeforeTheLoad) {
  const std::string endpoint = local_endpoint(free_ports(1));
  std::optional<EnginePtr> first(open_demo(events_at(endpoint)));
  ASSERT_NE(*first, nullptr);
  const ::tessera::test::ScratchDir without_model;
  const std::string options = R"({"model-path": ")" + without_model.path() + '"' + events_at(endpoint) + "}";
  Error error;
  tessera_engine* second = nullptr;
  EXPECT_NE(tessera_open(options.c_str(), &second, error.out()), TESSERA_OK);
  EXPECT_THAT(error.message(), HasSubstr("cannot listen at " + endpoint + ": Address"));
  first.reset();
  EXPECT_NE(tessera_open(options.c_str(), &second, error.out()), TESSERA_OK);
  EXPECT_THAT(error.message(), HasSubstr(without_model.path())) << "the address is free, and the model is missing";
}

TEST(KvEventsOfAnEngine, WithoutACacheAreRefused) {
  Error error;
  tessera_engine* engine = nullptr;
  const std::string options =
      demo_options(R"(, "disable-radix-cache": true, "kv-events-config": "{\"publisher\": \"zmq\"}")");
  EXPECT_EQ(tessera_open(options.c_str(), &engine, error.out()), TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("--disable-radix-cache"));
}

}  // namespace
}  // namespace tessera::capi::test
