#include "tessera/load/stream_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

// Returns the value of "usage": {key: …}; -1 if it is absent.
std::int64_t usage_of(const Json& event, std::string_view key) {
  const Json* usage = event.find("usage");
  const Json* count = usage == nullptr ? nullptr : usage->find(key);
  return count != nullptr && count->is_int() ? count->as_int() : -1;
}

// Returns the value of "usage": {"prompt_tokens_details": {"cached_tokens": …}}; nothing if it is absent.
std::optional<std::int64_t> cached_tokens_of(const Json& event) {
  const Json* usage = event.find("usage");
  const Json* details = usage == nullptr ? nullptr : usage->find("prompt_tokens_details");
  const Json* cached = details == nullptr ? nullptr : details->find("cached_tokens");
  return cached != nullptr && cached->is_int() ? std::optional(cached->as_int()) : std::nullopt;
}

// Appends the ids of a choice's new tokens to `ids`.
void append_ids(const Json& choice, std::vector<std::int64_t>& ids) {
  const Json* list = choice.find("token_ids");
  if (list == nullptr || !list->is_array()) return;
  for (const Json& id : list->as_array())
    if (id.is_int()) ids.push_back(id.as_int());
}

const Json* first_choice(const Json& event) {
  const Json* choices = event.find("choices");
  const bool any = choices != nullptr && choices->is_array() && !choices->as_array().empty();
  return any ? &choices->as_array()[0] : nullptr;
}

}  // namespace

std::string error_message(std::string_view body) {
  const Result<Json> json = Json::parse(body, "the answer");
  const Json* error = json.ok() ? json->find("error") : nullptr;
  const Json* message = error != nullptr && error->is_object() ? error->find("message") : error;
  if (message == nullptr && json.ok()) message = json->find("message");
  std::string text = message != nullptr && message->is_string() ? message->as_string() : std::string(body);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return clip_text(std::move(text));
}

void StreamRecord::push(std::string_view bytes, double now_s) {
  events_.push(bytes, [&](std::string_view data) { event(data, now_s); });
}

void StreamRecord::end() {
  if (!done_) fail("the stream ended before its [DONE]");
  if (record_.output_tokens == 0) fail("the stream had no tokens");
}

void StreamRecord::event(std::string_view data, double now_s) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Result<Json> event = Json::parse(data, "an event");
  if (!event.ok() || !event->is_object()) {
    fail("an event is no JSON object");
    return;
  }
  if (event->find("error") != nullptr) {
    fail(error_message(data));
    return;
  }
  if (const std::int64_t input = usage_of(*event, "prompt_tokens"); input >= 0) record_.input_tokens = input;
  if (const std::optional<std::int64_t> cached = cached_tokens_of(*event); cached) record_.cached_tokens = cached;
  const std::int64_t told = usage_of(*event, "completion_tokens");
  const Json* choice = first_choice(*event);
  if (choice == nullptr) {
    // The final usage also counts tokens without text, whose arrival times are unknown.
    record_.output_tokens = std::max(record_.output_tokens, told);
    return;
  }
  if (keep_ids_) append_ids(*choice, record_.output_ids);
  const Json* text = choice->find("text");
  const bool has_text = text != nullptr && text->is_string() && !text->as_string().empty();
  tokens(told >= 0 ? told : record_.output_tokens + (has_text ? 1 : 0), now_s);
}

void StreamRecord::tokens(std::int64_t count, double now_s) {
  const std::int64_t more = count - record_.output_tokens;
  if (more <= 0) return;
  if (record_.output_tokens == 0) {
    record_.first_token_s = now_s;
  } else {
    const auto gap = static_cast<float>((now_s - record_.end_s) / static_cast<double>(more));
    record_.gaps_s.insert(record_.gaps_s.end(), static_cast<std::size_t>(more), gap);
  }
  record_.output_tokens = count;
  record_.end_s = now_s;
}

void StreamRecord::fail(std::string reason) {
  if (record_.failure.empty()) record_.failure = std::move(reason);
}

}  // namespace tessera
