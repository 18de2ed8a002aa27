// "usage" of OpenAI's answers.
#pragma once

#include <cstdint>

#include "tessera/engine/request.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera {

struct Usage {
  std::int64_t prompt_tokens = 0;  // each prompt once, however many choices it has
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t image_tokens = 0;  // of the prompt; written where there are any
  std::int64_t reasoning_tokens = 0;
};

void write_usage(JsonWriter& json, const Usage& usage);

// stream_options, and how often a stream sends.
struct StreamFields {
  bool stream = false;
  bool include_usage = false;           // an event of its own before the end
  bool continuous_usage_stats = false;  // with every event
  std::int64_t interval = 1;            // tokens from one event of a choice to the next; the server's
};
// Members of stream_options that are not known are refused, or ignored.
ApiResult<StreamFields> read_stream_fields(const ApiFields& fields, bool ignore_unknown);
// Whether a stream sends after a choice's token number `tokens`: with the first one, with each multiple of `interval`,
// and at the end.
bool event_is_due(std::int64_t tokens, std::int64_t interval, FinishReason finish);

}  // namespace tessera
