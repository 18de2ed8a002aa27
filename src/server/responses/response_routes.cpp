#include "tessera/server/responses/response_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/fields/query_fields.h"
#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/http/client_of.h"
#include "tessera/server/refusals.h"
#include "tessera/server/responses/compaction.h"
#include "tessera/server/responses/event_log.h"
#include "tessera/server/responses/response_include.h"

namespace tessera {
namespace {

constexpr std::string_view kResponseRoute = "/responses/";

// Appends the items of a list, given as JSON text.
ApiStatus append_items(const std::string& list, Json::Array& items) {
  Json parsed = TRY(Json::parse(list, "the stored items"));
  std::ranges::move(parsed.as_array(), std::back_inserter(items));
  return api_ok();
}

// Returns the items that the model read for the turn `last`: all items of the turns before it, and the input of `last`.
ApiResult<Json::Array> items_before(const ConversationTurn& last) {
  std::vector<const ConversationTurn*> turns;
  for (const ConversationTurn* turn = last.before.get(); turn != nullptr; turn = turn->before.get())
    turns.push_back(turn);
  Json::Array items;
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    TRY(append_items((*turn)->input, items));
    TRY(append_items((*turn)->output, items));
  }
  TRY(append_items(last.input, items));
  return items;
}

ApiResult<std::string> input_items_body(const Call& call, const StoredResponse& response) {
  if (response.turn == nullptr)
    return invalid_field("response_id", "the response has not ended, or has failed; accepted: one that has ended");
  TRY(check_included(query_values(call.request().query, "include"), "query:"));
  Json::Array items = TRY(items_before(*response.turn));
  std::ranges::reverse(items);  // the newest first
  return list_body(call.request().query, items, /*most=*/100, /*otherwise=*/20);
}

// Checks the query of GET …/responses/ID. Returns whether it asks for a stream.
ApiResult<bool> wants_stream(std::string_view query) {
  TRY(check_included(query_values(query, "include"), "query:"));
  const bool stream = TRY(query_boolean(query, "stream"));
  if (!stream && query_value(query, "starting_after"))
    return invalid_field("starting_after", "query: \"starting_after\" has no effect; accepted: only with stream=true");
  return stream;
}

// Streams a background response's events to the call.
ApiStatus follow(const Call& call, const StoredResponse& response) {
  if (response.events == nullptr)
    return invalid_field("stream",
                         "only a response that was made with \"background\" and \"stream\" can be followed; "
                         "accepted: a request without \"stream\"");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t after = TRY(query_integer(call.request().query, "starting_after", 0, kMost)).value_or(-1);
  return response.events->follow(call, after);
}

void respond(const Call& call, ApiResult<std::string> body) {
  if (body.ok()) {
    call.respond_json(*std::move(body));
  } else {
    call.refuse(body.error());
  }
}

}  // namespace

void ResponseRoutes::add_to(Router& router) {
  for (const char* path : {"/v1/responses", "/responses"})
    router.add({"POST", path, [this](Call call) { make(std::move(call)); }});
  for (const char* path : {"/v1/responses/input_tokens", "/responses/input_tokens"})
    router.add({"POST", path, [this](Call call) { count_tokens(std::move(call)); }});
  for (const char* path : {"/v1/responses/compact", "/responses/compact"})
    router.add({"POST", path, [this](Call call) { compact(std::move(call)); }});
  for (const char* path : {"/v1/responses/*", "/responses/*"}) {
    using Handle = void (ResponseRoutes::*)(const Call& call, const std::string& owner) const;
    const auto add = [&](const char* method, Handle handle) {
      router.add(
          {method, path, [this, handle](const Call& call) { (this->*handle)(call, owner_of(call.request(), keys_)); }});
    };
    add("GET", &ResponseRoutes::get);
    add("DELETE", &ResponseRoutes::erase);
    add("POST", &ResponseRoutes::cancel);
  }
}

void ResponseRoutes::make(Call call) const {
  if (const std::optional<ApiError> error = refusal_()) return call.refuse(*error);
  const auto prepare = [this, owner = owner_of(call.request(), keys_)](const ServedModel& model,
                                                                       std::string_view body) {
    return prepare_response(model, body, store_, owner);
  };
  reader_.read<ResponseJob>(std::move(call), prepare, [this](Call prepared, ApiResult<ResponseJob> made) {
    if (made.ok()) {
      own_sessions([&] { return owner_of(prepared.request(), keys_); }, made->job.requests);
      start(std::move(prepared), *std::move(made));
    } else {
      prepared.refuse(made.error());
    }
  });
}

void ResponseRoutes::count_tokens(Call call) const {
  const auto count = [this, owner = owner_of(call.request(), keys_)](const ServedModel& model, std::string_view body) {
    return response_tokens_body(model, body, store_, owner);
  };
  reader_.read<std::string>(std::move(call), count, [](const Call& counted, ApiResult<std::string> body) {
    respond(counted, std::move(body));
  });
}

void ResponseRoutes::compact(Call call) const {
  if (const std::optional<ApiError> error = refusal_()) return call.refuse(*error);
  const auto prepare = [this, owner = owner_of(call.request(), keys_)](const ServedModel& model,
                                                                       std::string_view body) {
    return prepare_compaction(model, body, store_, owner);
  };
  reader_.read<ApiJob>(std::move(call), prepare, [this](Call prepared, ApiResult<ApiJob> made) {
    if (!made.ok()) return prepared.refuse(made.error());
    own_sessions([&] { return owner_of(prepared.request(), keys_); }, made->requests);
    jobs_.start(std::move(prepared), *std::move(made));
  });
}

void ResponseRoutes::start(Call call, ResponseJob made) const {
  if (!made.background) return jobs_.start(std::move(call), std::move(made.job));
  const auto events = made.job.stream ? std::make_shared<EventLog>(store_) : nullptr;
  if (events != nullptr) {
    events->append(made.answer->begin());
    if (!events->kept().ok()) return call.refuse(events->kept().error());
  }
  if (const ApiStatus kept = made.answer->keep_running(events); !kept.ok()) return call.refuse(kept.error());
  made.job.deliver = [events](std::string_view text, bool last) {
    if (events == nullptr) return;
    events->append(text);
    if (last) events->end();
  };
  if (events != nullptr) {
    (void)events->follow(call, -1);  // cannot fail: no event was dropped
  } else {
    call.respond_json(made.answer->current("queued"), "in the background", made.job.note);
  }
  jobs_.start(std::move(call), std::move(made.job));
}

void ResponseRoutes::get(const Call& call, const std::string& owner) const {
  const PathTarget target = target_of(call.request().path, kResponseRoute);
  if (!target.action.empty() && target.action != "/input_items") return call.refuse(nothing_at(call.request().path));
  auto found = store_.find(target.id, owner);
  if (!found.ok()) return call.refuse(found.error());
  const StoredResponse& response = **found;
  if (!target.action.empty()) return respond(call, input_items_body(call, response));
  ApiResult<bool> stream = wants_stream(call.request().query);
  if (!stream.ok()) return call.refuse(stream.error());
  if (!*stream) return call.respond_json(response.body);
  if (const ApiStatus followed = follow(call, response); !followed.ok()) call.refuse(followed.error());
}

void ResponseRoutes::erase(const Call& call, const std::string& owner) const {
  const PathTarget target = target_of(call.request().path, kResponseRoute);
  if (!target.action.empty()) return call.refuse(nothing_at(call.request().path));
  if (const auto found = store_.find(target.id, owner); !found.ok()) return call.refuse(found.error());
  jobs_.cancel(target.id);
  if (const ApiStatus erased = store_.erase(target.id, owner); !erased.ok()) return call.refuse(erased.error());
  JsonWriter json;
  json.object().key("id").value(target.id).key("object").value("response").key("deleted").value(true);
  call.respond_json(json.end_object().take());
}

void ResponseRoutes::cancel(const Call& call, const std::string& owner) const {
  const PathTarget target = target_of(call.request().path, kResponseRoute);
  if (target.action != "/cancel") return call.refuse(nothing_at(call.request().path));
  auto found = store_.find(target.id, owner);
  if (!found.ok()) return call.refuse(found.error());
  if (!(*found)->background)
    return call.refuse(invalid_field("response_id",
                                     "only a response that was made with \"background\" can be cancelled; "
                                     "another ends when its client leaves"));
  jobs_.cancel(target.id);
  found = store_.find(target.id, owner);
  if (!found.ok()) return call.refuse(found.error());
  call.respond_json((*found)->body);
}

}  // namespace tessera
