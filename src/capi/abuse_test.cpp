// Catches: calls with wrong arguments (NULL pointers, sizes that are too small, bodies that are not JSON) that crash,
// write to the caller's memory, or return no error.
#include <cstdint>
#include <limits>
#include <string>

#include "tessera/capi/capi_test_util.h"

namespace tessera::capi::test {
namespace {

using ::testing::HasSubstr;

TEST(Abuse, NullIsAnErrorThatNamesThePointer) {
  Error error;
  char* text = nullptr;
  std::int32_t* ids = nullptr;
  std::size_t count = 0;
  tessera_engine* engine = nullptr;
  tessera_request* request = nullptr;
  tessera_event event{.size = sizeof(event), .kind = 0, .code = 0, .json = nullptr, .json_size = 0};
  const tessera_submission empty{
      .size = sizeof(empty), .path = nullptr, .body = nullptr, .body_size = 0, .on_event = nullptr, .user = nullptr};
  const auto refused = [&](const char* what, tessera_code code) {
    EXPECT_EQ(code, TESSERA_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr(std::string(what) + " is NULL"));
  };
  refused("options", tessera_open(nullptr, &engine, error.out()));
  refused("engine", tessera_open("{}", nullptr, error.out()));
  refused("engine", tessera_health(nullptr, error.out()));
  refused("options", tessera_explain(nullptr, &text, error.out()));
  refused("json", tessera_explain("{}", nullptr, error.out()));
  refused("engine", tessera_info(nullptr, &text, error.out()));
  refused("json", tessera_info(demo(), nullptr, error.out()));
  refused("engine", tessera_metrics(nullptr, &text, error.out()));
  refused("json", tessera_metrics(demo(), nullptr, error.out()));
  refused("engine", tessera_tokenize(nullptr, "a", 1, 0, &ids, &count, error.out()));
  refused("text", tessera_tokenize(demo(), nullptr, 0, 0, &ids, &count, error.out()));
  refused("ids", tessera_tokenize(demo(), "a", 1, 0, nullptr, &count, error.out()));
  refused("count", tessera_tokenize(demo(), "a", 1, 0, &ids, nullptr, error.out()));
  refused("engine", tessera_detokenize(nullptr, ids, 0, 0, &text, nullptr, error.out()));
  refused("ids", tessera_detokenize(demo(), nullptr, 1, 0, &text, nullptr, error.out()));
  refused("text", tessera_detokenize(demo(), nullptr, 0, 0, nullptr, nullptr, error.out()));
  refused("engine", tessera_apply_chat_template(nullptr, "{}", &text, error.out()));
  refused("body", tessera_apply_chat_template(demo(), nullptr, &text, error.out()));
  refused("prompt", tessera_apply_chat_template(demo(), "{}", nullptr, error.out()));
  refused("engine", tessera_submit(nullptr, &empty, &request, error.out()));
  refused("submission", tessera_submit(demo(), nullptr, &request, error.out()));
  refused("request", tessera_submit(demo(), &empty, nullptr, error.out()));
  refused("submission->path", tessera_submit(demo(), &empty, &request, error.out()));
  refused("request", tessera_request_next(nullptr, 0, &event, error.out()));
  refused("request", tessera_request_wait(nullptr, 0, error.out()));
  refused("engine", tessera_ask(nullptr, "/generate", "{}", &text, error.out()));
  refused("path", tessera_ask(demo(), nullptr, "{}", &text, error.out()));
  refused("body", tessera_ask(demo(), "/generate", nullptr, &text, error.out()));
  refused("answer", tessera_ask(demo(), "/generate", "{}", nullptr, error.out()));
  refused("engine", tessera_lora_load(nullptr, "{}", error.out()));
  refused("body", tessera_lora_load(demo(), nullptr, error.out()));
  refused("engine", tessera_lora_unload(nullptr, "a", error.out()));
  refused("name", tessera_lora_unload(demo(), nullptr, error.out()));
  refused("engine", tessera_lora_wait(nullptr, "a", 0, error.out()));
  refused("name", tessera_lora_wait(demo(), nullptr, 0, error.out()));
  refused("engine", tessera_lora_list(nullptr, &text, error.out()));
  refused("json", tessera_lora_list(demo(), nullptr, error.out()));
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(ids, nullptr);
  EXPECT_EQ(engine, nullptr);
  EXPECT_EQ(request, nullptr);

  const RequestPtr under_way = submit(demo(), kLongStream);
  refused("event", tessera_request_next(under_way.get(), 0, nullptr, error.out()));
  EXPECT_EQ(tessera_open(nullptr, nullptr, nullptr), TESSERA_INVALID_ARGUMENT) << "an error is never required";
}

TEST(Abuse, FreeingNothingIsFine) {
  tessera_free(nullptr);
  tessera_error_free(nullptr);
  tessera_request_free(nullptr);
  tessera_request_cancel(nullptr);
  EXPECT_EQ(tessera_close(nullptr, nullptr), TESSERA_OK);
  EXPECT_STREQ(tessera_error_message(nullptr), "");
  EXPECT_STREQ(tessera_error_field(nullptr), "");
  EXPECT_STREQ(tessera_code_name(-5), "unknown");
  EXPECT_EQ(tessera_api_version(), static_cast<std::uint32_t>(TESSERA_API_VERSION));
}

TEST(Abuse, StructsOfAnotherSizeAreRefused) {
  Error error;
  tessera_request* request = nullptr;
  tessera_submission small{.size = sizeof(small) - 1,
                           .path = "/generate",
                           .body = "{}",
                           .body_size = 0,
                           .on_event = nullptr,
                           .user = nullptr};
  EXPECT_EQ(tessera_submit(demo(), &small, &request, error.out()), TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("sizeof(tessera_submission)"));
  const RequestPtr under_way = submit(demo(), kLongStream);
  tessera_event event{.size = 0, .kind = 77, .code = 0, .json = nullptr, .json_size = 0};
  EXPECT_EQ(tessera_request_next(under_way.get(), -1, &event, error.out()), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(event.kind, 77) << "nothing is written";

  // A caller of a later version passes more fields than this library knows.
  struct Larger {
    tessera_event event;
    std::uint64_t later = std::numeric_limits<std::uint64_t>::max();
  } larger{.event = {.size = sizeof(Larger), .kind = 0, .code = 0, .json = nullptr, .json_size = 0}};
  EXPECT_EQ(tessera_request_next(under_way.get(), -1, &larger.event, error.out()), TESSERA_OK) << error.message();
  EXPECT_EQ(larger.later, std::numeric_limits<std::uint64_t>::max());
}

TEST(Abuse, WrongBodiesNameTheirField) {
  Error error;
  char* text = nullptr;
  for (const char* body : {"", "{", "[]", "null", "\xff", "{\"text\": 5}", "{\"nothing\": 1}"}) {
    EXPECT_EQ(tessera_ask(demo(), "/generate", body, &text, error.out()), TESSERA_INVALID_ARGUMENT) << body;
    EXPECT_NE(error.message(), "") << body;
  }
  EXPECT_EQ(tessera_ask(demo(), "/generate", R"({"text": "a", "sampling_params": {"top_p": 7}})", &text, error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_STREQ(tessera_error_field(error.error), "sampling_params.top_p");
  EXPECT_EQ(tessera_ask(demo(), "/generate", R"({"text": "a", "stream": true})", &text, error.out()),
            TESSERA_INVALID_ARGUMENT);
  EXPECT_STREQ(tessera_error_field(error.error), "stream");
}

}  // namespace
}  // namespace tessera::capi::test
