// Shows a progress bar on standard error. On a terminal the bar is updated in place. If standard error is not a
// terminal, one line is written at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera {

class Progress {
 public:
  // Starts a bar. If `unit` is "B", numbers of bytes are printed in MiB. Any other unit is printed after the number. If
  // `enabled` is false, nothing is drawn.
  Progress(std::string title, std::int64_t total, std::string unit, bool enabled);
  ~Progress();  // draws the bar a last time and ends its line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t by) { set(done_ + by); }
  void set(std::int64_t done, const std::string& note = {});
  // Returns the text of the bar in its current state. The bar itself has `width` columns.
  std::string render(int width) const;

 private:
  void draw(bool last);
  std::string title_;
  std::int64_t total_;
  std::string unit_;
  bool enabled_;
  bool terminal_;
  std::int64_t done_ = 0;
  std::string note_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace tessera
