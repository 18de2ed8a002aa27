// Writes and reads "usage" of OpenAI's answers, and reads the request's fields about streams.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera {

struct Usage {
  std::int64_t prompt_tokens = 0;  // each prompt counts once, even if it has several choices
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t image_tokens = 0;  // the part of prompt_tokens that images take; written if not 0
  std::int64_t reasoning_tokens = 0;
  DraftTotals drafts{};  // counts of draft tokens; written if there were any

  void add(const Usage& more);
};

// Writes the usage of chats, completions and embeddings: prompt_tokens, completion_tokens, ….
void write_usage(JsonWriter& json, const Usage& usage);
// Writes the usage of responses and batches: input_tokens, output_tokens, ….
void write_response_usage(JsonWriter& json, const Usage& usage);
// Reads what write_usage() or write_response_usage() wrote. Counts that are missing, or are no integers, are 0. The
// number of steps with drafts is not written, so it is 0 too.
Usage read_usage(const Json& json);
// Writes the numbers of accepted and rejected draft tokens as members of an open object, if anything was drafted.
void write_draft_counts(JsonWriter& json, const DraftTotals& drafts);

// Returns the finish reason in OpenAI's words: "stop", "length", or "abort" for a request that /abort_request ended.
// Returns "" before the end.
std::string_view answer_finish_reason(FinishReason reason);

// The members of stream_options, and how often a stream sends events.
struct StreamFields {
  bool stream = false;
  bool include_usage = false;           // an extra event before the end has the usage
  bool continuous_usage_stats = false;  // every event has the usage
  std::int64_t interval = 1;            // tokens between two events of a choice; set by the server
};
// Reads "stream" and "stream_options". Unknown members of stream_options are refused unless `ignore_unknown`.
ApiResult<StreamFields> read_stream_fields(const ApiFields& fields, bool ignore_unknown);
// Returns whether a stream sends an event when a choice has `tokens` tokens. Events are due after the first token,
// after each multiple of `interval` tokens, and at the end, when `finish` is not kNone.
bool event_is_due(std::int64_t tokens, std::int64_t interval, FinishReason finish);

}  // namespace tessera
