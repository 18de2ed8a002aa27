// Log lines by topic: "engine", "capture", "dispatch", "load", … Each topic has its own level.
// Lines go to standard error, so that standard output stays the program's answer.
//
//   log_info("capture", "captured {} sizes in {:.2f} s", n, seconds);
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// One entry of `--log-level`: "warn" for all topics, "capture=debug" for one.
Status set_log_level(std::string_view spec);

bool log_enabled(std::string_view topic, LogLevel level);
// Thread-safe. `line` has no newline at its end.
void log_line(std::string_view topic, LogLevel level, std::string_view line);

template <class... Args>
void log_debug(std::string_view topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kDebug))
    log_line(topic, LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(std::string_view topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kInfo))
    log_line(topic, LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(std::string_view topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kWarn))
    log_line(topic, LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(std::string_view topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kError))
    log_line(topic, LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
