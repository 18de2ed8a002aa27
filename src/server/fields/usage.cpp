#include "tessera/server/fields/usage.h"

#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

// Returns the count at `key`. If it is missing, returns the count at `other_key`, or 0 if both are missing.
std::int64_t count_of(const Json& json, std::string_view key, std::string_view other_key) {
  for (const std::string_view name : {key, other_key})
    if (const Json* count = json.find(name); count != nullptr && count->is_int()) return count->as_int();
  return 0;
}

// Returns the object at `key` or at `other_key`, or null if neither exists.
Json details_of(const Json& json, std::string_view key, std::string_view other_key) {
  for (const std::string_view name : {key, other_key})
    if (const Json* details = json.find(name); details != nullptr) return *details;
  return {};
}

}  // namespace

void Usage::add(const Usage& more) {
  prompt_tokens += more.prompt_tokens;
  completion_tokens += more.completion_tokens;
  cached_tokens += more.cached_tokens;
  image_tokens += more.image_tokens;
  reasoning_tokens += more.reasoning_tokens;
  drafts.add(more.drafts);
}

void write_draft_counts(JsonWriter& json, const DraftTotals& drafts) {
  if (drafts.drafted == 0) return;
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

void write_response_usage(JsonWriter& json, const Usage& usage) {
  json.object().key("input_tokens").value(usage.prompt_tokens);
  json.key("input_tokens_details").object().key("cached_tokens").value(usage.cached_tokens);
  json.key("cache_write_tokens").value(0).end_object();
  json.key("output_tokens").value(usage.completion_tokens);
  json.key("output_tokens_details").object().key("reasoning_tokens").value(usage.reasoning_tokens);
  write_draft_counts(json, usage.drafts);
  json.end_object();
  json.key("total_tokens").value(usage.prompt_tokens + usage.completion_tokens).end_object();
}

Usage read_usage(const Json& json) {
  const Json input = details_of(json, "input_tokens_details", "prompt_tokens_details");
  const Json output = details_of(json, "output_tokens_details", "completion_tokens_details");
  const auto detail = [](const Json& details, std::string_view key) { return count_of(details, key, key); };
  const std::int64_t kept = detail(output, "accepted_prediction_tokens");
  return {.prompt_tokens = count_of(json, "input_tokens", "prompt_tokens"),
          .completion_tokens = count_of(json, "output_tokens", "completion_tokens"),
          .cached_tokens = detail(input, "cached_tokens"),
          .image_tokens = detail(input, "image_tokens"),
          .reasoning_tokens = detail(output, "reasoning_tokens"),
          .drafts = {.drafted = kept + detail(output, "rejected_prediction_tokens"), .kept = kept}};
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
