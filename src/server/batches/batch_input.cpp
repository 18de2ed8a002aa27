#include "tessera/server/batches/batch_input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

constexpr std::size_t kMostFaults = 100;

// Returns the fault of a line, or nothing if the line is valid. Adds the line's custom_id to `ids`.
std::optional<BatchFault> check_line(const BatchInput::Line& line, std::string_view endpoint,
                                     std::unordered_set<std::string>& ids) {
  const auto fault = [&](const char* code, std::string message) {
    return BatchFault{.code = code, .message = std::move(message), .line = line.number};
  };
  if (line.text.size() > kMostBatchLine)
    return fault("line_too_long",
                 fmt::format("the line has {} bytes; accepted: up to {}", line.text.size(), kMostBatchLine));
  Json id;
  const Result<BatchRequest> request = read_whole_batch_line(line.text, id);
  if (!request.ok()) return fault("invalid_line", request.status().message());
  if (batch_url(request->kind) != endpoint)
    return fault("mismatched_endpoint", fmt::format("\"url\" is \"{}\"; accepted: \"{}\", the batch's endpoint",
                                                    batch_url(request->kind), endpoint));
  if (!ids.insert(id.as_string()).second)
    return fault("duplicate_custom_id", fmt::format("\"custom_id\" is \"{}\", as in an earlier line; accepted: "
                                                    "a different one in each line",
                                                    clip_text(id.as_string())));
  return std::nullopt;
}

}  // namespace

Result<BatchInput> BatchInput::open(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(fmt::format("the input file cannot be read: {}", std::strerror(errno)));
  return BatchInput(std::move(file));
}

std::optional<BatchInput::Line> BatchInput::next() {
  Line line;
  while (std::getline(file_, line.text)) {
    line.number = ++number_;
    if (line.text.ends_with('\r')) line.text.pop_back();
    if (line.text.find_first_not_of(" \t") != std::string::npos) return line;
  }
  return std::nullopt;
}

Result<CheckedInput> check_batch_input(const std::filesystem::path& path, std::string_view endpoint) {
  BatchInput input = TRY(BatchInput::open(path));
  CheckedInput checked;
  std::unordered_set<std::string> ids;
  while (const std::optional<BatchInput::Line> line = input.next()) {
    if (++checked.requests > kMostBatchRequests) {
      checked.faults.push_back(
          {.code = "too_many_requests",
           .message =
               fmt::format("the file has more than {} requests, the most that a file may have", kMostBatchRequests)});
      return checked;
    }
    if (std::optional<BatchFault> fault = check_line(*line, endpoint, ids)) checked.faults.push_back(*std::move(fault));
    if (checked.faults.size() == kMostFaults) return checked;
  }
  if (checked.requests == 0) checked.faults.push_back({.code = "empty_file", .message = "the file has no requests"});
  return checked;
}

}  // namespace tessera
