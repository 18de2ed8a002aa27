// Calls into a plugin: what they return becomes a Status, and no exception gets out of them.
//
//   TRY(call([&](tessera_plugin_error* error) { return table.bind(table.self, &c_call, &bound, error); }));
#pragma once

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// kInternal for a code that is none.
Status status_of(std::int32_t code, std::string_view message);
// The other way round, for functions that the host offers: leaves the message in `error`, which may be null.
std::int32_t to_c(const Status& status, tessera_plugin_error* error);

template <class F>
Status call(const F& function) {
  std::array<char, 1024> message;  // the message is a string as long as its first byte is set
  message[0] = message.back() = 0;
  tessera_plugin_error error{.size = sizeof(error), .message = message.data(), .message_bytes = message.size() - 1};
  try {
    const std::int32_t code = function(&error);
    if (code == TESSERA_PLUGIN_OK) [[likely]]
      return ok_status();
    return status_of(code, message.data());
  } catch (const std::exception& exception) {
    return internal_error(std::string("the plugin threw an exception, which it must not: ") + exception.what());
  } catch (...) {
    return internal_error("the plugin threw an exception, which it must not");
  }
}

// What a plugin made, after a call that succeeded: kInternal for null, which free functions never get.
inline Status check_made(const void* made, std::string_view what) {
  if (made != nullptr) [[likely]]
    return ok_status();
  return internal_error(std::string("the plugin reported success and gave no ").append(what));
}

// A function that returns nothing; what it throws is dropped where there is nobody to tell.
template <class F>
void call_and_forget(const F& function) {
  try {
    function();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the object is gone either way
  }
}

// Collects a text that a plugin writes.
class TextSink {
 public:
  TextSink();
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;
  const tessera_plugin_text* get() const { return &text_; }
  std::string take() { return std::move(written_); }

 private:
  tessera_plugin_text text_;
  std::string written_;
};

}  // namespace tessera::plugin
