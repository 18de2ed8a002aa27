#include "tessera/base/timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

void Timeline::record(std::string_view name, Clock::time_point begin, Clock::time_point end) {
  std::erase_if(phases_, [&](const Phase& phase) { return phase.name == name; });
  Phase phase{.name = std::string(name), .begin_s = seconds_at(begin), .end_s = seconds_at(end)};
  const auto after =
      std::find_if(phases_.begin(), phases_.end(), [&](const Phase& other) { return other.begin_s > phase.begin_s; });
  phases_.insert(after, std::move(phase));
}

double Timeline::seconds_of(std::string_view name) const {
  const auto it = std::find_if(phases_.begin(), phases_.end(), [&](const Phase& phase) { return phase.name == name; });
  return it == phases_.end() ? 0 : it->seconds();
}

double Timeline::end_s() const {
  double end = 0;
  for (const Phase& phase : phases_) end = std::max(end, phase.end_s);
  return end;
}

double Timeline::uncovered_s() const {
  double covered_to = 0;
  double uncovered = 0;
  for (const Phase& phase : phases_) {
    uncovered += std::max(0.0, phase.begin_s - covered_to);
    covered_to = std::max(covered_to, phase.end_s);
  }
  return uncovered;
}

std::string Timeline::line() const {
  std::string text;
  for (const Phase& phase : phases_)
    text +=
        fmt::format("{}{} {:.1f}-{:.1f}", text.empty() ? "" : ", ", phase.name, 1e3 * phase.begin_s, 1e3 * phase.end_s);
  return fmt::format("{:.1f} ms ({}; {:.1f} in none of these)", 1e3 * end_s(), text, 1e3 * uncovered_s());
}

}  // namespace tessera
