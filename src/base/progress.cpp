#include "tessera/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tessera {

Progress::Progress(std::string title, std::int64_t total, std::string unit, bool enabled)
    : title_(std::move(title)),
      total_(std::max<std::int64_t>(total, 0)),
      unit_(std::move(unit)),
      enabled_(enabled),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (enabled_) draw(true);
}

void Progress::set(std::int64_t done, const std::string& note) {
  done_ = std::clamp<std::int64_t>(done, 0, total_);
  note_ = note;
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || !terminal_ || now - drawn_ < std::chrono::milliseconds(50)) return;
  drawn_ = now;
  draw(false);
}

std::string Progress::render(int width) const {
  const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1.0;
  const auto filled = static_cast<std::size_t>(share * width);
  const std::string bar = std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '.');
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  constexpr double kMiB = 1024.0 * 1024.0;
  const std::string amount = unit_ == "B" ? fmt::format("{:.1f}/{:.1f} MiB", static_cast<double>(done_) / kMiB,
                                                        static_cast<double>(total_) / kMiB)
                                          : fmt::format("{}/{} {}", done_, total_, unit_);
  return fmt::format("{} [{}] {} {:.2f} s{}{}", title_, bar, amount, seconds, note_.empty() ? "" : "  ", note_);
}

void Progress::draw(bool last) {
  const std::string line = render(24);
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K{}", line, last ? "\n" : "");
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

}  // namespace tessera
