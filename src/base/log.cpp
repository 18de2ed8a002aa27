#include "tessera/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <map>
#include <mutex>

namespace tessera {
namespace {

constexpr std::string_view kLevelNames[] = {"debug", "info", "warn", "error", "off"};

struct Levels {
  std::mutex mutex;
  std::map<std::string, LogLevel, std::less<>> topics;
  std::atomic<LogLevel> all{LogLevel::kInfo};
  std::atomic<bool> has_topics{false};
};

Levels& levels() {
  static Levels instance;
  return instance;
}

spdlog::logger& sink() {
  static auto logger = [] {
    auto l = std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern("[%H:%M:%S.%e] %L %v");
    l->set_level(spdlog::level::debug);  // topics filter before the line gets here
    l->flush_on(spdlog::level::warn);
    return l;
  }();
  return *logger;
}

}  // namespace

Status set_log_level(std::string_view spec) {
  const auto equals = spec.find('=');
  const std::string_view name = equals == std::string_view::npos ? spec : spec.substr(equals + 1);
  for (int i = 0; i < 5; ++i) {
    if (name != kLevelNames[i]) continue;
    const auto level = static_cast<LogLevel>(i);
    if (equals == std::string_view::npos) {
      levels().all = level;
    } else {
      std::scoped_lock lock(levels().mutex);
      levels().topics[std::string(spec.substr(0, equals))] = level;
      levels().has_topics = true;
    }
    return ok_status();
  }
  return invalid_argument(
      fmt::format("log level \"{}\" is none of debug, info, warn, error, off (or topic=level)", spec));
}

bool log_enabled(std::string_view topic, LogLevel level) {
  Levels& l = levels();
  if (l.has_topics) {
    std::scoped_lock lock(l.mutex);
    if (auto it = l.topics.find(topic); it != l.topics.end()) return level >= it->second;
  }
  return level >= l.all.load();
}

void log_line(std::string_view topic, LogLevel level, std::string_view line) {
  constexpr spdlog::level::level_enum kTo[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                               spdlog::level::err, spdlog::level::off};
  sink().log(kTo[static_cast<int>(level)], "{}: {}", topic, line);
}

}  // namespace tessera
