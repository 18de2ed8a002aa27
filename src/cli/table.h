// Formats a text table with a header and rows. Columns are as wide as their widest cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

class Table {
 public:
  // Makes a table. A heading that begins with '>' makes its column right-aligned.
  explicit Table(std::vector<std::string> headings);
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Returns the text. Each line is indented by two spaces and ends with a line break.
  std::string text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns the bytes as text: "12.3 MiB" or "512 B".
std::string bytes_text(std::int64_t bytes);
// Returns the count with thousands separators: "12,345".
std::string count_text(std::int64_t count);
// Returns the number with at least three significant digits: "0.123", "12.3", "1,234".
std::string number_text(double value);
// Returns the sizes as text: "16, 32, 48 … 2048 (42 sizes)". A short list is shown completely.
std::string sizes_text(const std::vector<std::int64_t>& sizes);
// Returns the count with the noun: "1 token" or "2 tokens".
std::string plural(std::int64_t count, const std::string& noun);

}  // namespace tessera::cli
