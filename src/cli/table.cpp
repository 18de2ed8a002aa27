#include "tessera/cli/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::cli {
namespace {

// Returns the number of columns that a UTF-8 text takes. Each character counts as one column.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(heading.starts_with('>'));
    if (right_.back()) heading.erase(0, 1);
  }
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < headings_.size(); ++c) {
    widths.push_back(width(headings_[c]));
    for (const std::vector<std::string>& row : rows_) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string space(widths[c] - width(cells[c]), ' ');
      line += "  " + (right_[c] ? space + cells[c] : cells[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line(headings_);
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (const std::size_t w : widths) rule.emplace_back(w, '-');
  add_line(rule);
  for (const std::vector<std::string>& row : rows_) add_line(row);
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string count_text(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string number_text(double value) {
  const double size = std::fabs(value);
  if (size >= 100) return count_text(std::llround(value));
  return size >= 10  ? fmt::format("{:.1f}", value)
         : size >= 1 ? fmt::format("{:.2f}", value)
                     : fmt::format("{:.3f}", value);
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  if (sizes.empty()) return "none";
  if (sizes.size() <= 6) return fmt::format("{}", fmt::join(sizes, ", "));
  return fmt::format("{}, {}, {} … {} ({} sizes)", sizes[0], sizes[1], sizes[2], sizes.back(), sizes.size());
}

std::string plural(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count_text(count), noun, count == 1 ? "" : "s");
}

}  // namespace tessera::cli
