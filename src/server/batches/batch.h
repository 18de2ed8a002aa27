// A batch: a file of requests that the server answers within a day, with lower priority than live requests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/fields/usage.h"

namespace tessera {

enum class BatchStatus : std::uint8_t {
  kValidating,  // waits for its turn, or its file is being checked
  kInProgress,
  kFinalizing,  // all requests have ended, and its answer files are being made
  kCompleted,
  kFailed,  // its file is invalid, or the server could not continue; `errors` has the reason
  kExpired,
  kCancelling,
  kCancelled,
};
inline constexpr std::size_t kNumBatchStatuses = 8;

// Returns "validating", "in_progress", ….
std::string_view batch_status_name(BatchStatus status);

// The reason for which a batch failed.
struct BatchFault {
  std::string code{};  // for example "invalid_line"
  std::string message{};
  std::int64_t line = 0;  // line of the input file, from 1; 0: the fault belongs to no line
};

struct Batch {
  std::string id{};        // begins with "batch_"
  std::string owner{};     // owner_of() of the client that made the batch
  std::string endpoint{};  // for example "/v1/chat/completions"
  std::string input_file_id{};
  BatchStatus status = BatchStatus::kValidating;
  std::string output_file_id{};  // "": there is none
  std::string error_file_id{};   // "": there is none
  std::int64_t created_at = 0;   // Unix time
  std::int64_t expires_at = 0;   // Unix time
  // For each BatchStatus, the Unix time at which the batch reached the status, or 0 if it has not reached the status.
  std::array<std::int64_t, kNumBatchStatuses> reached{};
  std::int64_t output_age_s = 0;  // seconds after which the batch's answer files are erased
  std::int64_t total = 0;         // number of requests
  std::int64_t completed = 0;     // number of requests with an answer of status 200
  std::int64_t failed = 0;        // number of other requests that have ended
  Usage usage{};                  // token counts of the completed requests
  Json metadata{};                // an object of strings, or null
  std::vector<BatchFault> errors{};
  // The header traceparent of the call that made the batch. It is "" if traces were off or the call had no such header.
  std::string trace_parent{};

  // Returns whether the batch has reached a final status.
  bool ended() const;
  // Changes the status and records the time.
  void reach(BatchStatus next, std::int64_t now);
  // Returns OpenAI's batch object.
  Json to_json() const;
};

// batch_record() returns the JSON text that the store writes for a batch. read_batch_record() makes the batch from this
// text. Its errors name the field that is missing or wrong.
std::string batch_record(const Batch& batch);
Result<Batch> read_batch_record(const Json& json, std::string id);

}  // namespace tessera
