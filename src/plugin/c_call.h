// Calls into a plugin. A call's result becomes a Status, and no exception leaves it.
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

// Returns the Status for a plugin's code; kInternal for an unknown code.
Status status_of(std::int32_t code, std::string_view message);
// Converts the result of a host function for a plugin. The message goes into `error`, which may be null.
std::int32_t to_c(const Status& status, tessera_plugin_error* error);

template <class F>
Status call(const F& function) {
  std::array<char, 1024> message;  // the message is empty unless its first byte is set
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

// Checks the object that a successful call returned: null is kInternal, so the plugin's free functions never get null.
inline Status check_made(const void* made, std::string_view what) {
  if (made != nullptr) [[likely]]
    return ok_status();
  return internal_error(std::string("the plugin reported success and gave no ").append(what));
}

// Calls a function that returns nothing. An exception is dropped, because nobody can be told.
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
