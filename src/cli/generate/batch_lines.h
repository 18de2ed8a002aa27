// Reads and writes the lines of OpenAI's batch files: requests and answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"

namespace tessera::cli {

enum class BatchRequestKind : std::uint8_t { kChat, kCompletion, kEmbedding };

// A line {"custom_id", "method", "url", "body"}, or only a body. A body with "messages" is a chat, with "prompt" a
// completion, and with "input" an embedding.
struct BatchRequest {
  BatchRequestKind kind = BatchRequestKind::kCompletion;
  std::string body{};  // JSON for the server's own reader
};

// Reads a line. `custom_id`, a string or null, is set as soon as it is known, even if an error is returned.
Result<BatchRequest> read_batch_line(std::string_view line, Json& custom_id);

// Returns the answer to a request as one line with its line break. `body` is JSON.
std::string batch_answer(const Json& custom_id, std::string_view request_id, std::string_view body);
// Returns the answer to a request that was refused or failed: an error with an HTTP status.
std::string batch_refusal(const Json& custom_id, const ApiError& error);
// Returns the answer to a line that is not a request.
std::string batch_error(const Json& custom_id, const Status& error);

}  // namespace tessera::cli
