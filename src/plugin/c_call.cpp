#include "tessera/plugin/c_call.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::plugin {
namespace {

static_assert(TESSERA_PLUGIN_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(TESSERA_PLUGIN_DEVICE_LOST == static_cast<int>(StatusCode::kDeviceLost));

void append(const tessera_plugin_text* text, const char* data, std::size_t bytes) {
  if (data != nullptr) static_cast<std::string*>(text->host)->append(data, bytes);
}

}  // namespace

Status status_of(std::int32_t code, std::string_view message) {
  if (code == TESSERA_PLUGIN_OK) return ok_status();
  if (code < 0 || code > TESSERA_PLUGIN_INTERNAL)
    return internal_error(fmt::format("returned {}, which is no code of tessera_plugin.h{}{}", code,
                                      message.empty() ? "" : ": ", message));
  return {static_cast<StatusCode>(code),
          message.empty() ? fmt::format("returned {} and gave no reason", code) : std::string(message)};
}

std::int32_t to_c(const Status& status, tessera_plugin_error* error) {
  if (status.ok()) return TESSERA_PLUGIN_OK;
  return tessera_plugin_fail(error, static_cast<std::int32_t>(status.code()), status.message().c_str());
}

TextSink::TextSink() : text_{.size = sizeof(text_), .append = append, .host = &written_} {}

}  // namespace tessera::plugin
