#include "tessera/cli/serve/process_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>

#include "tessera/base/json.h"

namespace tessera::cli {

Result<long long> start_ticks(std::string_view stat) {
  const auto wrong = [] {
    return data_loss("/proc/self/stat: the start time is missing; accepted: field 22, a number");
  };
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return wrong();
  std::size_t at = name_end;
  for (int field = 2; field < 22; ++field) {
    at = stat.find(' ', at + 1);
    if (at == std::string_view::npos) return wrong();
  }
  long long ticks = 0;
  const auto [end, error] = std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  if (error != std::errc() || ticks < 0) return wrong();
  return ticks;
}

Timeline::Clock::time_point process_start() {
  const Result<std::string> stat = read_text_file("/proc/self/stat");
  const Result<long long> ticks = stat.ok() ? start_ticks(*stat) : Result<long long>(stat.status());
  const long per_second = ::sysconf(_SC_CLK_TCK);
  // Reads both clocks in direct succession, because a pause between the readings would distort the result.
  timespec since_boot{};
  const int read = ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const Timeline::Clock::time_point now = Timeline::Clock::now();
  if (!ticks.ok() || per_second <= 0 || read != 0) return now;
  const double age_s = static_cast<double>(since_boot.tv_sec) + 1e-9 * static_cast<double>(since_boot.tv_nsec) -
                       static_cast<double>(*ticks) / static_cast<double>(per_second);
  const std::chrono::duration<double> age(std::max(age_s, 0.0));
  return now - std::chrono::duration_cast<Timeline::Clock::duration>(age);
}

void record_start(Command& command, Timeline::Clock::time_point began) {
  const auto record = [&](auto& options) {
    if constexpr (requires { options.engine; }) {
      const Timeline::Clock::time_point origin = std::min(process_start(), began);
      Timeline& start = options.engine.start.emplace(origin);
      start.record("process", origin, began);
      start.record("options", began, Timeline::Clock::now());
    }
  };
  std::visit(record, command);
}

}  // namespace tessera::cli
