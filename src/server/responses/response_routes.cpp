#include "tessera/server/responses/response_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/http/client_of.h"
#include "tessera/server/http/query.h"
#include "tessera/server/responses/event_log.h"

namespace tessera {
namespace {

// The part of a path after "/responses/": "ID" or "ID/ACTION".
struct Target {
  std::string id;
  std::string action{};
};

Target target_of(std::string_view path) {
  constexpr std::string_view kRoute = "/responses/";
  path.remove_prefix(path.find(kRoute) + kRoute.size());
  const std::size_t slash = std::min(path.find('/'), path.size());
  return {.id = std::string(path.substr(0, slash)), .action = std::string(path.substr(slash))};
}

ApiError no_such_action(const Call& call) {
  return {.http_status = 404,
          .message = fmt::format("there is nothing at {}", clip_text(call.request().path)),
          .param = {},
          .code = "unknown_url"};
}

// Returns a query parameter that must be a whole number within [low, high].
ApiResult<std::optional<std::int64_t>> integer_of(const Call& call, std::string_view name, std::int64_t low,
                                                  std::int64_t high) {
  const std::optional<std::string> text = query_value(call.request().query, name);
  if (!text) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const std::from_chars_result read = std::from_chars(text->data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || value < low || value > high)
    return invalid_field(std::string(name),
                         fmt::format("query: \"{}\" is \"{}\"; accepted: {} to {}", name, clip_text(*text), low, high));
  return std::optional(value);
}

// Appends the items of a list, given as JSON text.
ApiStatus append_items(const std::string& list, Json::Array& items) {
  Json parsed = TRY(Json::parse(list, "the stored items"));
  std::ranges::move(parsed.as_array(), std::back_inserter(items));
  return api_ok();
}

// Returns the model's input for a response: the turns before it and the request's own items.
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

std::string id_of(const Json& item) { return item.find("id")->as_string(); }

ApiResult<std::string> input_items_body(const Call& call, const StoredResponse& response) {
  constexpr std::int64_t kMost = 100;
  constexpr std::int64_t kOtherwise = 20;
  if (response.turn == nullptr)
    return invalid_field("response_id", "the response has not ended, or has failed; accepted: one that has ended");
  const std::int64_t limit = TRY(integer_of(call, "limit", 1, kMost)).value_or(kOtherwise);
  const std::string order = query_value(call.request().query, "order").value_or("desc");
  if (order != "asc" && order != "desc")
    return invalid_field("order", fmt::format("query: \"order\" is \"{}\"; accepted: asc or desc", clip_text(order)));
  Json::Array items = TRY(items_before(*response.turn));
  if (order == "desc") std::ranges::reverse(items);
  auto first = items.begin();
  if (const auto after = query_value(call.request().query, "after")) {
    first = std::ranges::find(items, *after, id_of);
    if (first == items.end())
      return invalid_field(
          "after", fmt::format("query: \"after\" is \"{}\"; accepted: the id of an input item", clip_text(*after)));
    ++first;
  }
  const auto last = items.end() - first > limit ? first + limit : items.end();
  JsonWriter json;
  json.object().key("object").value("list").key("data").array();
  for (auto item = first; item != last; ++item) json.value(*item);
  json.end_array().key("first_id").value_or_null(first != last ? id_of(*first) : "");
  json.key("last_id").value_or_null(first != last ? id_of(*(last - 1)) : "");
  return json.key("has_more").value(last != items.end()).end_object().take();
}

// Streams a background response's events to the call.
ApiStatus follow(const Call& call, const StoredResponse& response) {
  if (response.events == nullptr)
    return invalid_field("stream",
                         "only a response that was made with \"background\" and \"stream\" can be followed; "
                         "accepted: a request without \"stream\"");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t after = TRY(integer_of(call, "starting_after", 0, kMost)).value_or(-1);
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
  for (const char* path : {"/v1/responses/*", "/responses/*"}) {
    using Handle = void (ResponseRoutes::*)(const Call& call, const std::string& owner) const;
    const auto add = [&](const char* method, Handle handle) {
      router.add({method, path,
                  [this, handle](const Call& call) { (this->*handle)(call, owner_of(call.request(), api_keys_)); }});
    };
    add("GET", &ResponseRoutes::get);
    add("DELETE", &ResponseRoutes::erase);
    add("POST", &ResponseRoutes::cancel);
  }
}

void ResponseRoutes::make(Call call) const {
  if (const std::optional<ApiError> error = refusal_()) return call.refuse(*error);
  const auto prepare = [this, owner = owner_of(call.request(), api_keys_)](const ServedModel& model,
                                                                           std::string_view body) {
    return prepare_response(model, body, store_, owner);
  };
  reader_.read<ResponseJob>(std::move(call), prepare, [this](Call prepared, ApiResult<ResponseJob> made) {
    if (made.ok()) {
      start(std::move(prepared), *std::move(made));
    } else {
      prepared.refuse(made.error());
    }
  });
}

void ResponseRoutes::count_tokens(Call call) const {
  const auto count = [this, owner = owner_of(call.request(), api_keys_)](const ServedModel& model,
                                                                         std::string_view body) {
    return response_tokens_body(model, body, store_, owner);
  };
  reader_.read<std::string>(std::move(call), count, [](const Call& counted, ApiResult<std::string> body) {
    respond(counted, std::move(body));
  });
}

void ResponseRoutes::start(Call call, ResponseJob made) const {
  if (!made.background) return jobs_.start(std::move(call), std::move(made.job));
  const auto events = made.job.stream ? std::make_shared<EventLog>(store_) : nullptr;
  if (const ApiStatus kept = made.answer->keep_running(events); !kept.ok()) return call.refuse(kept.error());
  made.job.deliver = [events](std::string_view text, bool last) {
    if (events == nullptr) return;
    events->append(text);
    if (last) events->end();
  };
  if (events != nullptr) {
    events->append(made.answer->begin());
    (void)events->follow(call, -1);  // all events of a log that has just begun are there
  } else {
    call.respond_json(made.answer->current("queued"), "in the background", made.job.note);
  }
  jobs_.start(std::move(call), std::move(made.job));
}

void ResponseRoutes::get(const Call& call, const std::string& owner) const {
  const Target target = target_of(call.request().path);
  if (!target.action.empty() && target.action != "/input_items") return call.refuse(no_such_action(call));
  auto found = store_.find(target.id, owner);
  if (!found.ok()) return call.refuse(found.error());
  const StoredResponse& response = **found;
  if (!target.action.empty()) return respond(call, input_items_body(call, response));
  if (query_value(call.request().query, "stream").value_or("false") != "true") return call.respond_json(response.body);
  if (const ApiStatus followed = follow(call, response); !followed.ok()) call.refuse(followed.error());
}

void ResponseRoutes::erase(const Call& call, const std::string& owner) const {
  const Target target = target_of(call.request().path);
  if (!target.action.empty()) return call.refuse(no_such_action(call));
  if (const auto found = store_.find(target.id, owner); !found.ok()) return call.refuse(found.error());
  jobs_.cancel(target.id);
  if (const ApiStatus erased = store_.erase(target.id, owner); !erased.ok()) return call.refuse(erased.error());
  JsonWriter json;
  json.object().key("id").value(target.id).key("object").value("response").key("deleted").value(true);
  call.respond_json(json.end_object().take());
}

void ResponseRoutes::cancel(const Call& call, const std::string& owner) const {
  const Target target = target_of(call.request().path);
  if (target.action != "/cancel") return call.refuse(no_such_action(call));
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
