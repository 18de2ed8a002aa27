// Reads a batch's input file, which has one request per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/batches/batch.h"
#include "tessera/server/batches/batch_lines.h"

namespace tessera {

// The largest number of requests in a batch, and of bytes in a line.
inline constexpr std::int64_t kMostBatchRequests = 50'000;
inline constexpr std::size_t kMostBatchLine = std::size_t{32} << 20;

// Reads the lines of a file in order, without blank ones. Threads: one thread at a time may use an object.
class BatchInput {
 public:
  struct Line {
    std::int64_t number = 0;  // line number in the file, from 1
    std::string text{};
  };
  static Result<BatchInput> open(const std::filesystem::path& path);
  // Returns the next line that is not blank, or nothing at the end of the file.
  std::optional<Line> next();

 private:
  explicit BatchInput(std::ifstream file) : file_(std::move(file)) {}
  std::ifstream file_;
  std::int64_t number_ = 0;
};

// The result of checking a file.
struct CheckedInput {
  std::int64_t requests = 0;
  std::vector<BatchFault> faults{};  // the first 100 faults; empty: the file is valid
};

// Reads a whole file. Every line must be a request to `endpoint` with a "custom_id" that no other line has. The
// request's body is checked only when the request runs. Error: the file cannot be read.
Result<CheckedInput> check_batch_input(const std::filesystem::path& path, std::string_view endpoint);

}  // namespace tessera
