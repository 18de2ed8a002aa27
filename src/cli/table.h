// A text table: a header, rows, columns as wide as their widest cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

class Table {
 public:
  // A heading that begins with '>' stands for a column aligned to the right.
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Each line indented by two, with a line break at its end.
  std::string text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "12.3 MiB", "512 B"
std::string bytes_text(std::int64_t bytes);
// "12,345"
std::string count_text(std::int64_t count);
// Three significant digits or more: "0.123", "12.3", "1,234"
std::string number_text(double value);
// "16, 32, 48 … 2048 (42 sizes)"; short lists in full
std::string sizes_text(const std::vector<std::int64_t>& sizes);
// "1 token", "2 tokens"
std::string plural(std::int64_t count, const std::string& noun);

}  // namespace tessera::cli
