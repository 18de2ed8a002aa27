#include "tessera/base/log.h"

#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace tessera {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warn", "error", "off"};
constexpr std::size_t kNumTopics = std::size(kLogTopics);

struct Levels {
  std::array<std::atomic<LogLevel>, kNumTopics> topics;
  std::array<std::atomic<bool>, kNumTopics> own{};  // [topic]: whether the topic has a level of its own

  Levels() { set_all(LogLevel::kInfo); }
  void set_all(LogLevel level) {
    for (std::size_t i = 0; i < kNumTopics; ++i)
      if (!own[i]) topics[i] = level;
  }
  void set(std::size_t topic, LogLevel level) {
    own[topic] = true;
    topics[topic] = level;
  }
};

Levels& levels() {
  static Levels instance;
  return instance;
}

using Wording = std::function<std::string(std::string_view line)>;

Wording& log_wording() {
  static Wording instance;
  return instance;
}

spdlog::logger& sink() {
  static auto logger = [] {
    auto l = std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern("[%H:%M:%S.%e] %L %v");
    l->set_level(spdlog::level::debug);  // lines are filtered by topic before they get here
    l->flush_on(spdlog::level::warn);
    return l;
  }();
  return *logger;
}

std::optional<LogLevel> level_of(std::string_view name) {
  if (name == "warning") return LogLevel::kWarn;  // Python's name of the level
  const auto it = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (it == kLevelNames.end()) return std::nullopt;
  return static_cast<LogLevel>(it - kLevelNames.begin());
}

Status set_topic_level(std::string_view topic, LogLevel level) {
  for (std::size_t i = 0; i < kNumTopics; ++i) {
    if (kLogTopics[i].name != topic) continue;
    levels().set(i, level);
    return ok_status();
  }
  std::vector<std::string_view> names;
  for (const LogTopicName& known : kLogTopics) names.push_back(known.name);
  return invalid_argument(fmt::format("there is no log topic \"{}\": {} are", topic, fmt::join(names, ", ")));
}

// Escapes control characters. A line may contain a client's text, which must not start a new line or control the
// terminal.
std::string on_one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

Status set_log_level(std::string_view spec) {
  const auto equals = spec.find('=');
  const bool of_topic = equals != std::string_view::npos;
  const std::optional<LogLevel> level = level_of(of_topic ? spec.substr(equals + 1) : spec);
  if (!level) {
    return invalid_argument(
        fmt::format("log level \"{}\" is none of {} (or topic=level)", spec, fmt::join(kLevelNames, ", ")));
  }
  if (of_topic) return set_topic_level(spec.substr(0, equals), *level);
  levels().set_all(*level);
  return ok_status();
}

void set_log_wording(Wording wording) { log_wording() = std::move(wording); }

bool log_enabled(LogTopic topic, LogLevel level) {
  return level >= levels().topics[topic.index()].load(std::memory_order_relaxed);
}

void log_line(LogTopic topic, LogLevel level, std::string_view line) {
  constexpr spdlog::level::level_enum kTo[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                               spdlog::level::err, spdlog::level::off};
  const Wording& wording = log_wording();
  const std::string written = on_one_line(wording ? wording(line) : std::string(line));
  sink().log(kTo[static_cast<int>(level)], "{}: {}", kLogTopics[topic.index()].name, written);
}

}  // namespace tessera
