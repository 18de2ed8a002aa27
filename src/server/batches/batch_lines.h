// Reads and writes the lines of OpenAI's batch files: requests and answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"

namespace tessera {

enum class BatchRequestKind : std::uint8_t { kChat, kCompletion, kEmbedding, kClassification, kResponse };

// Returns the route of a kind: "/v1/chat/completions".
std::string_view batch_url(BatchRequestKind kind);
// Returns the kind of request whose route is `url`, or nothing.
std::optional<BatchRequestKind> batch_kind(std::string_view url);
// Returns the routes of all kinds as a text for error messages: "/v1/chat/completions", "/v1/completions", … or
// "/v1/responses".
std::string batch_urls();

// A request line: {"custom_id", "method", "url", "body"}, or only a body, which may then contain "custom_id". A body
// with "messages" is a chat, a body with "prompt" is a completion, and a body with "input" is an embedding. Other
// routes need the whole form.
struct BatchRequest {
  BatchRequestKind kind = BatchRequestKind::kCompletion;
  std::string body{};  // the JSON body of a request to the route
};

// Reads a line. `custom_id`, a string or null, is set as soon as it is known, even if an error is returned.
Result<BatchRequest> read_batch_line(std::string_view line, Json& custom_id);
// Reads a line that must have all four members, and a "custom_id" that is not empty.
Result<BatchRequest> read_whole_batch_line(std::string_view line, Json& custom_id);

// Makes a request's job by calling the function that also reads live requests to this route. Stores responses in
// `store` for `owner`. This is slow, so do not call it on the I/O thread. `model` and `store` outlive the job. Errors:
// those of the route, and a 400 if the request asks for a stream or for a background response.
ApiResult<ApiJob> prepare_batch_request(const ServedModel& model, const BatchRequest& request, ResponseStore& store,
                                        const std::string& owner);

// Returns the line with the answer to a request, ending with a line break. `body` is JSON.
std::string batch_answer(const Json& custom_id, std::string_view request_id, std::string_view body);
// Returns the line for a request that was refused or failed: an error with an HTTP status.
std::string batch_refusal(const Json& custom_id, const ApiError& error);
// Returns the line for a request that got no response. `code` names the reason in one word, such as "invalid_line" for
// a line that is not a request.
std::string batch_error(const Json& custom_id, std::string_view code, std::string_view message);

}  // namespace tessera
