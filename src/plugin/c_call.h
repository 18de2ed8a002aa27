// Calls functions of a plugin, converts each result to a Status, and catches every exception.
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

// Returns the Status for the code that a plugin returned. Returns kInternal for an unknown code.
Status status_of(std::int32_t code, std::string_view message);
// Converts a Status that a function of the engine returned to the code that the plugin gets. Writes the message to
// `error`, which may be null.
std::int32_t to_c(const Status& status, tessera_plugin_error* error);

template <class F>
Status call(const F& function) {
  std::array<char, 1024> message;  // not initialised; a zero as its first byte makes the message empty
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

// Checks the object that a successful call returned. Returns kInternal if it is null, so that a plugin's free function
// never gets null.
inline Status check_made(const void* made, std::string_view what) {
  if (made != nullptr) [[likely]]
    return ok_status();
  return internal_error(std::string("the plugin reported success and gave no ").append(what));
}

// Calls a function that returns nothing. Drops its exceptions, because they cannot be reported to anyone.
template <class F>
void call_and_forget(const F& function) {
  try {
    function();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the object counts as freed either way
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
