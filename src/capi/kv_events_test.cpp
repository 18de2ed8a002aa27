// Catches: an engine within a program whose cache events reach no subscriber, and an address that a closed engine
// keeps.
#include <fmt/format.h>

#include <array>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/capi/capi_test_util.h"
#include "tessera/server/events/zmq_library.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;

// Returns the size of the first message that a subscriber gets after a generation; -1 if none comes.
int first_event(tessera_engine* engine, const std::string& endpoint) {
  const ZmqLibrary zmq = *ZmqLibrary::open();
  void* const context = zmq.ctx_new();
  void* const socket = zmq.socket(context, ZMQ_SUB);
  const int wait_ms = 250;
  zmq.setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
  zmq.setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
  EXPECT_EQ(zmq.connect(socket, endpoint.c_str()), 0);
  std::array<char, 4096> frame{};
  int size = -1;
  // A subscription takes a moment, so a message of the first prompts may be lost.
  for (int prompt = 0; prompt < 20 && size < 0; ++prompt) {
    const std::string body = fmt::format(
        R"({{"text": "{} upon a time there was a fox who", "sampling_params": {{"max_new_tokens": 40}}}})", prompt);
    char* answer = nullptr;
    EXPECT_EQ(tessera_ask(engine, "/generate", body.c_str(), &answer, nullptr), TESSERA_OK);
    tessera_free(answer);
    size = zmq.recv(socket, frame.data(), frame.size(), 0);
  }
  zmq.close(socket);
  zmq.ctx_term(context);
  return size;
}

TEST(KvEventsOfAnEngine, ReachASubscriberUntilItIsClosed) {
  const ::tessera::test::ScratchDir folder;
  const std::string endpoint = "ipc://" + folder.path() + "/events";
  const std::string events =
      R"(, "page-size": 4, "kv-events-config": "{\"publisher\": \"zmq\", \"bind\": true, \"endpoint\": \")" + endpoint +
      R"(\"}")";
  for (int time = 0; time < 2; ++time) {  // the second engine has the address of the first
    const EnginePtr engine = open_demo(events);
    ASSERT_NE(engine, nullptr);
    EXPECT_GE(first_event(engine.get(), endpoint), 0);
  }
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
