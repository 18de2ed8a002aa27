#include "tessera/server/openai/usage.h"

#include "tessera/server/fields/request_fields.h"

namespace tessera {

void write_draft_counts(JsonWriter& json, const DraftTotals& drafts) {
  if (drafts.steps == 0) return;
  json.key("accepted_prediction_tokens").value(drafts.kept);
  json.key("rejected_prediction_tokens").value(drafts.drafted - drafts.kept);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.object().key("prompt_tokens").value(usage.prompt_tokens);
  json.key("completion_tokens").value(usage.completion_tokens);
  json.key("total_tokens").value(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").object().key("cached_tokens").value(usage.cached_tokens);
  if (usage.image_tokens > 0) json.key("image_tokens").value(usage.image_tokens);
  json.end_object();
  json.key("completion_tokens_details").object().key("reasoning_tokens").value(usage.reasoning_tokens);
  write_draft_counts(json, usage.drafts);
  json.end_object();
  json.end_object();
}

std::string_view answer_finish_reason(FinishReason reason) {
  return reason == FinishReason::kCancelled ? "abort" : finish_reason_name(reason);
}

ApiResult<StreamFields> read_stream_fields(const ApiFields& fields, bool ignore_unknown) {
  StreamFields out;
  out.stream = TRY(fields.boolean_or("stream", false));
  const Json* options = TRY(fields.object("stream_options"));
  if (options == nullptr) return out;
  if (!out.stream) return fields.wrong("stream_options", "none where \"stream\" is not true");
  const ApiFields inner(*options, "stream_options.");
  TRY(check_request_fields(inner, request_object::kStreamOptions, ignore_unknown));
  out.include_usage = TRY(inner.boolean_or("include_usage", false));
  out.continuous_usage_stats = TRY(inner.boolean_or("continuous_usage_stats", false));
  return out;
}

bool event_is_due(std::int64_t tokens, std::int64_t interval, FinishReason finish) {
  return finish != FinishReason::kNone || tokens <= 1 || tokens % interval == 0;
}

}  // namespace tessera
