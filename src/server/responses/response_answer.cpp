#include "tessera/server/responses/response_answer.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/openai/token_extras.h"
#include "tessera/server/tools/call_arguments.h"

namespace tessera {
namespace {

void append_element(std::string& list, std::string_view element) {
  if (!list.empty()) list += ", ";
  list += element;
}

void append_named_event(std::string& stream, std::string_view type, std::string_view json) {
  stream += "event: ";
  stream += type;
  stream += '\n';
  append_server_sent_event(stream, json);
}

}  // namespace

ResponseAnswer::ResponseAnswer(ResponseStyle style) : style_(std::move(style)), parts_(style_.text) {
  usage_.prompt_tokens = style_.prompt_tokens;
}

Status ResponseAnswer::failure() const {
  if (parts_.status().ok()) return ok_status();
  // Only a plugin's parser can fail. If it fails, the answer reports an internal error, because the plugin is at fault
  // and not the client.
  return internal_error(parts_.status().message());
}

template <class Write>
void ResponseAnswer::append_event(std::string& stream, std::string_view type, const Write& write) {
  if (!style_.stream) return;
  json_.clear();
  json_.object().key("type").value(type).key("sequence_number").value(sequence_++);
  write(json_);
  append_named_event(stream, type, json_.end_object().text());
}

// Appends an event that concerns the open item.
template <class Write>
void ResponseAnswer::append_item_event(std::string& stream, std::string_view type, const Write& write) {
  append_event(stream, type, [&](JsonWriter& json) {
    json.key("item_id").value(item_->id).key("output_index").value(item_ids_.size());
    write(json);
  });
}

void ResponseAnswer::write_response(JsonWriter& json, std::string_view status, const ApiError* error) const {
  json.raw(style_.head).key("status").value(status).key("error");
  if (error == nullptr) {
    json.null();
  } else {
    json.object().key("code").value(error->code.empty() ? "server_error" : error->code);
    json.key("message").value(error->message).end_object();
  }
  json.key("incomplete_details");
  if (status == "incomplete") {
    json.object().key("reason").value("max_output_tokens").end_object();
  } else {
    json.null();
  }
  json.key("completed_at");
  if (status == "completed") {
    json.value(unix_time());
  } else {
    json.null();
  }
  json.key("output").array();
  if (!output_.empty()) json.raw(output_);
  json.end_array().key("usage");
  if (ended_) {
    write_response_usage(json, usage_);
  } else {
    json.null();
  }
  json.end_object();
}

std::string ResponseAnswer::current(std::string_view status) const {
  JsonWriter json;
  write_response(json, status);
  return json.take();
}

std::string ResponseAnswer::begin() {
  std::string stream;
  if (std::exchange(begun_, true)) return stream;
  for (const std::string_view type : {"response.created", "response.in_progress"})
    append_event(stream, type, [&](JsonWriter& json) { write_response(json.key("response"), "in_progress"); });
  return stream;
}

void ResponseAnswer::on_event(std::size_t, const RequestEvent& event, Completion* end, std::string& stream) {
  if (!begun_) stream += begin();
  if (event.token) {
    ++usage_.completion_tokens;
    if (parts_.in_reasoning()) ++usage_.reasoning_tokens;
  }
  if (event.logprobs && !parts_.in_reasoning()) add_logprobs(*event.logprobs);
  add(parts_.push(event.text), stream);
  if (event.finish != FinishReason::kNone) {
    finish_ = event.finish;
    add(parts_.finish(), stream);
  }
  if (end != nullptr) {
    usage_.completion_tokens = std::ssize(end->output_ids);
    usage_.cached_tokens = end->cached_tokens;
    usage_.drafts = end->drafts;
  }
  if (style_.stream && event_is_due(usage_.completion_tokens, style_.interval, event.finish)) send_delta(stream);
}

// Adds the pieces of one delta to the output. First adds the pieces that belong to the open call, because one delta may
// contain the end of a call and the text that follows the call.
void ResponseAnswer::add(ChatPieces pieces, std::string& stream) {
  std::size_t next = 0;
  while (next < pieces.calls.size() && item_ && item_->is_call() && pieces.calls[next].index == call_index_)
    add_call(pieces.calls[next++], stream);
  for (const Kind kind : {Kind::kReasoning, Kind::kMessage}) {
    const std::string& text = kind == Kind::kReasoning ? pieces.reasoning : pieces.content;
    if (text.empty()) continue;
    if (!item_ || item_->kind != kind) open({.kind = kind, .id = make_item_id(kind)}, stream);
    item_->text += text;
    if (kind == Kind::kMessage && !logprobs_.empty()) append_element(item_->logprobs, std::exchange(logprobs_, {}));
    if (kind == Kind::kReasoning) logprobs_.clear();
  }
  for (; next < pieces.calls.size(); ++next) add_call(pieces.calls[next], stream);
}

void ResponseAnswer::add_call(const ToolCallDelta& delta, std::string& stream) {
  logprobs_.clear();
  const bool known = item_ && item_->is_call() && delta.index == call_index_;
  if (!known) {
    const ResponseTool* tool = nullptr;
    for (const ResponseTool& each : style_.tools)
      if (each.shown == delta.name) tool = &each;
    const Kind kind = tool != nullptr && tool->custom ? Kind::kCustomCall : Kind::kFunctionCall;
    open({.kind = kind,
          .id = make_item_id(kind),
          .call_id = delta.id,
          .name = tool != nullptr ? tool->name : delta.name,
          .space = tool != nullptr ? tool->space : ""},
         stream);
    call_index_ = delta.index;
    input_ = {};
  }
  item_->text += item_->kind == Kind::kCustomCall ? input_.push(delta.arguments) : delta.arguments;
}

void ResponseAnswer::add_logprobs(const TokenLogprobs& token) {
  if (!style_.logprobs) return;
  JsonWriter json;
  write_token_logprobs(json, token, style_.tokenizer, /*as_ids=*/false);
  append_element(logprobs_, json.text());
}

void ResponseAnswer::open(OutputItem item, std::string& stream) {
  close("completed", stream);
  item_ = std::move(item);
  append_event(stream, "response.output_item.added", [&](JsonWriter& json) {
    write_begun_item(json.key("output_index").value(item_ids_.size()).key("item"), *item_);
  });
  if (!item_->is_call()) begin_part(stream);
}

void ResponseAnswer::begin_part(std::string& stream) {
  const bool summary = item_->kind == Kind::kReasoning && style_.items.summary;
  append_item_event(stream, summary ? "response.reasoning_summary_part.added" : "response.content_part.added",
                    [&](JsonWriter& json) {
                      json.key(summary ? "summary_index" : "content_index").value(0).key("part");
                      write_part(json, *item_, style_.items, "", "");
                    });
}

// Sends the part of the open item's text that was not sent yet.
void ResponseAnswer::send_delta(std::string& stream) {
  if (!item_ || item_->sent == item_->text.size()) return;
  const std::string_view delta = std::string_view(item_->text).substr(item_->sent);
  switch (item_->kind) {
    case Kind::kReasoning: {
      const bool summary = style_.items.summary;
      append_item_event(stream, summary ? "response.reasoning_summary_text.delta" : "response.reasoning_text.delta",
                        [&](JsonWriter& json) {
                          json.key(summary ? "summary_index" : "content_index").value(0).key("delta").value(delta);
                        });
      break;
    }
    case Kind::kMessage: {
      std::string_view logprobs = std::string_view(item_->logprobs).substr(item_->sent_logprobs);
      if (logprobs.starts_with(", ")) logprobs.remove_prefix(2);
      append_item_event(stream, "response.output_text.delta", [&](JsonWriter& json) {
        json.key("content_index").value(0).key("delta").value(delta).key("logprobs").array();
        if (!logprobs.empty()) json.raw(logprobs);
        json.end_array();
      });
      break;
    }
    case Kind::kFunctionCall:
    case Kind::kCustomCall:
      append_item_event(stream,
                        item_->kind == Kind::kCustomCall ? "response.custom_tool_call_input.delta"
                                                         : "response.function_call_arguments.delta",
                        [&](JsonWriter& json) { json.key("delta").value(delta); });
      break;
  }
  item_->sent = item_->text.size();
  item_->sent_logprobs = item_->logprobs.size();
}

// Sends the events that end the open item's text and the content part with this text.
void ResponseAnswer::end_part(std::string& stream) {
  if (item_->kind == Kind::kFunctionCall) {
    return append_item_event(stream, "response.function_call_arguments.done", [&](JsonWriter& json) {
      json.key("name").value(item_->name).key("arguments").value(item_->text);
    });
  }
  if (item_->kind == Kind::kCustomCall) {
    return append_item_event(stream, "response.custom_tool_call_input.done",
                             [&](JsonWriter& json) { json.key("input").value(item_->text); });
  }
  const bool reasoning = item_->kind == Kind::kReasoning;
  const bool summary = reasoning && style_.items.summary;
  const char* const index = summary ? "summary_index" : "content_index";
  append_item_event(stream,
                    summary     ? "response.reasoning_summary_text.done"
                    : reasoning ? "response.reasoning_text.done"
                                : "response.output_text.done",
                    [&](JsonWriter& json) {
                      json.key(index).value(0).key("text").value(item_->text);
                      if (reasoning) return;
                      json.key("logprobs").array();
                      if (!item_->logprobs.empty()) json.raw(item_->logprobs);
                      json.end_array();
                    });
  append_item_event(stream, summary ? "response.reasoning_summary_part.done" : "response.content_part.done",
                    [&](JsonWriter& json) {
                      json.key(index).value(0).key("part");
                      write_part(json, *item_, style_.items, item_->text, item_->logprobs);
                    });
}

// Ends the open item, if there is one.
void ResponseAnswer::close(std::string_view status, std::string& stream) {
  if (!item_) return;
  const bool whole = item_->kind == Kind::kCustomCall     ? input_.is_whole()
                     : item_->kind == Kind::kFunctionCall ? are_whole_arguments(item_->text)
                                                          : true;
  if (!whole) status = "incomplete";
  if (item_->kind == Kind::kCustomCall) item_->text += input_.finish();
  send_delta(stream);
  end_part(stream);
  JsonWriter item;
  write_ended_item(item, *item_, style_.items, status);
  append_event(stream, "response.output_item.done", [&](JsonWriter& json) {
    json.key("output_index").value(item_ids_.size()).key("item").raw(item.text());
  });
  append_element(output_, item.text());
  item_ids_.push_back(item_->id);
  item_.reset();
  call_index_ = -1;
  if (style_.keeping.background) keep(current("in_progress"), /*running=*/true, /*complete=*/false);
}

// Ends the response: closes its last item, and sends the object with all items.
void ResponseAnswer::end(std::string& stream) {
  if (std::exchange(ended_, true)) return;
  const bool cut_off = finish_ == FinishReason::kLength;
  if (!item_ && item_ids_.empty()) open({.kind = Kind::kMessage, .id = make_item_id(Kind::kMessage)}, stream);
  close(cut_off ? "incomplete" : "completed", stream);
  std::string object = current(cut_off ? "incomplete" : "completed");
  append_event(stream, cut_off ? "response.incomplete" : "response.completed",
               [&](JsonWriter& json) { json.key("response").raw(object); });
  keep(std::move(object), /*running=*/false, /*complete=*/true);
}

std::string ResponseAnswer::last_events() {
  std::string stream;
  end(stream);
  return stream;
}

std::string ResponseAnswer::body() {
  std::string stream;
  end(stream);
  return current(finish_ == FinishReason::kLength ? "incomplete" : "completed");
}

std::string ResponseAnswer::stream_failure(const ApiError& error) const {
  JsonWriter object;
  write_response(object, "failed", &error);
  if (style_.keeping.background) keep(object.text(), /*running=*/false, /*complete=*/false);
  if (!style_.stream) return "";
  JsonWriter json;
  json.object().key("type").value("response.failed").key("sequence_number").value(sequence_);
  json.key("response").raw(object.text()).end_object();
  std::string stream;
  append_named_event(stream, "response.failed", json.text());
  return stream;
}

std::string ResponseAnswer::cancelled() {
  std::string stream;
  std::string object = current("cancelled");
  append_event(stream, "response.cancelled", [&](JsonWriter& json) { json.key("response").raw(object); });
  keep(std::move(object), /*running=*/false, /*complete=*/false);
  return stream;
}

ApiStatus ResponseAnswer::keep_running(std::shared_ptr<EventLog> events) {
  events_ = std::move(events);
  return style_.keeping.store->put({.id = style_.id,
                                    .owner = style_.keeping.owner,
                                    .body = current("queued"),
                                    .events = events_,
                                    .background = true,
                                    .running = true});
}

// Stores the response. If it does not fit into the store, this failure is logged, and the client still gets the
// response. If only its items do not fit, the response is stored without them, so no conversation can continue from it.
void ResponseAnswer::keep(std::string body, bool running, bool complete) const {
  const ResponseKeeping& keeping = style_.keeping;
  if (keeping.store == nullptr) return;
  StoredResponse response{.id = style_.id,
                          .owner = keeping.owner,
                          .body = std::move(body),
                          .events = events_,
                          .background = keeping.background,
                          .running = running};
  const auto warn = [&](const ApiStatus& kept) {
    if (!kept.ok()) log_warn("server", "the response {} is not stored: {}", style_.id, kept.error().message);
    return kept.ok();
  };
  if (complete) {
    auto turn = std::make_shared<ConversationTurn>(keeping.input, "[" + output_ + "]", keeping.before);
    turn->charge = keeping.store->new_charge();
    if (warn(keeping.store->charge(turn->charge, turn->bytes()))) {
      response.turn = std::move(turn);
      response.item_ids = item_ids_;
    }
  }
  warn(keeping.store->put(std::move(response)));
}

}  // namespace tessera
