// Gives tests of the C interface an engine with the bundled model, and handles that free themselves.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera.h>

#include <memory>
#include <string>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/device/testing/environment.h"

namespace tessera::capi::test {

struct Error {
  tessera_error* error = nullptr;
  Error() = default;
  Error(const Error&) = delete;
  Error& operator=(const Error&) = delete;
  ~Error() { tessera_error_free(error); }
  tessera_error** out() {
    tessera_error_free(std::exchange(error, nullptr));
    return &error;
  }
  tessera_code code() const { return tessera_error_code(error); }
  std::string message() const { return tessera_error_message(error); }
};

inline std::string taken(char* text) {
  const std::unique_ptr<char, decltype(&tessera_free)> owned(text, tessera_free);
  return owned == nullptr ? "" : std::string(owned.get());
}

// Returns options in JSON for the bundled model. Graphs of only a few sizes are captured, so that the engine opens
// quickly. `more` has additional options and begins with a comma.
inline std::string demo_options(const std::string& more = "") {
  return R"({"model-path": ")" + testing::source_path("models/demo") +
         R"(", "disable-cost-measurement": true, "piecewise-cuda-graph-tokens": [64], "cuda-graph-bs": [1, 2],)"
         R"( "max-total-tokens": 8192)" +
         more + "}";
}

inline void close(tessera_engine* engine) { tessera_close(engine, nullptr); }
using EnginePtr = std::unique_ptr<tessera_engine, decltype(&close)>;
using RequestPtr = std::unique_ptr<tessera_request, decltype(&tessera_request_free)>;

inline EnginePtr open_demo(const std::string& more = "") {
  Error error;
  tessera_engine* engine = nullptr;
  EXPECT_EQ(tessera_open(demo_options(more).c_str(), &engine, error.out()), TESSERA_OK) << error.message();
  return {engine, close};
}

// Returns the engine that all tests of the program share.
inline tessera_engine* demo() {
  static const EnginePtr engine = open_demo();
  return engine.get();
}

inline RequestPtr submit(tessera_engine* engine, const std::string& body, tessera_on_event on_event = nullptr,
                         void* user = nullptr, const char* path = "/generate") {
  Error error;
  tessera_request* request = nullptr;
  const tessera_submission submission{.size = sizeof(tessera_submission),
                                      .path = path,
                                      .body = body.c_str(),
                                      .body_size = 0,
                                      .on_event = on_event,
                                      .user = user};
  EXPECT_EQ(tessera_submit(engine, &submission, &request, error.out()), TESSERA_OK) << error.message();
  return {request, tessera_request_free};
}

struct Taken {
  int kind = 0;
  int code = 0;
  std::string json;
};
// Waits for the next event, without a limit of time, and returns it.
inline Taken next(tessera_request* request) {
  Error error;
  tessera_event event{.size = sizeof(tessera_event), .kind = 0, .code = 0, .json = nullptr, .json_size = 0};
  EXPECT_EQ(tessera_request_next(request, -1, &event, error.out()), TESSERA_OK) << error.message();
  if (event.json == nullptr) return {};
  return {event.kind, event.code, std::string(event.json, event.json_size)};
}

inline Json parsed(const std::string& text) { return *Json::parse(text, "answer"); }

// The body of a request whose stream is so long that a test always cancels it before its end.
inline constexpr const char* kLongStream =
    R"({"text": "Once upon a time", "stream": true, "sampling_params": {"max_new_tokens": 4000, "ignore_eos": true}})";

}  // namespace tessera::capi::test
