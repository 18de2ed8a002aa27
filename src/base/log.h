// Writes log lines by topic. Each topic has its own level. Lines go to standard error, so that standard output has only
// the program's result.
//
//   log_info("capture", "captured {} sizes in {:.2f} s", n, seconds);
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

struct LogTopicName {
  std::string_view name;
  std::string_view lines;  // what the topic's lines are about
};
// All topics. docs/serving.md has the same list.
inline constexpr LogTopicName kLogTopics[] = {
    {"attention", "which attention kernels a device has"},
    {"bench", "runs of tessera bench"},
    {"cache", "measured costs and chosen algorithms on disk: found, written, ignored"},
    {"capture", "graphs captured, and sizes dropped"},
    {"cli", "flags that are deprecated or overruled"},
    {"compile", "pieces compiled, and sizes bound to kernels and addresses"},
    {"debug", "what debug mode checks and writes"},
    {"dispatch", "every forward: runner, size, padding and reason; many fallbacks to eager"},
    {"engine", "what the plan settled otherwise than asked"},
    {"http", "connections"},
    {"hub", "models fetched"},
    {"load", "weights and tokenizers"},
    {"memory", "who gets how much of the device's memory"},
    {"server", "requests and what is served"},
    {"split", "a forward cut into pieces and split ops"},
};

// The topic of a log line. Callers pass the topic's name as a string literal. A name that is not in kLogTopics does not
// compile.
class LogTopic {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a topic is written as its name
  consteval LogTopic(const char* name) : index_(find(name)) {}
  std::size_t index() const { return index_; }

 private:
  static consteval std::size_t find(std::string_view name) {
    for (std::size_t i = 0; i < std::size(kLogTopics); ++i)
      if (kLogTopics[i].name == name) return i;
    throw "this topic is not in kLogTopics";  // makes the compilation fail
  }
  std::size_t index_;
};

// Sets the level of one topic ("capture=debug"), or of all topics without a level of their own ("warn"). The error for
// an unknown topic lists the known topics.
Status set_log_level(std::string_view spec);

// Sets a function that rewrites every line, for example to replace the internal names of options by the names that
// users know. Call it before other threads log. An empty function leaves lines unchanged.
void set_log_wording(std::function<std::string(std::string_view line)> wording);

bool log_enabled(LogTopic topic, LogLevel level);
// Writes a line. Thread-safe. `line` has no line break at its end. Control characters inside are escaped, for example
// as "\n" or "\x1b".
void log_line(LogTopic topic, LogLevel level, std::string_view line);

template <class... Args>
void log_debug(LogTopic topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kDebug))
    log_line(topic, LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(LogTopic topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kInfo))
    log_line(topic, LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(LogTopic topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kWarn))
    log_line(topic, LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(LogTopic topic, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(topic, LogLevel::kError))
    log_line(topic, LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
