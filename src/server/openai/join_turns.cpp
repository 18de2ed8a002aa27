#include "tessera/server/openai/join_turns.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tessera/server/openai/turn_content.h"

namespace tessera {
namespace {

bool may_join(const Json& last, const Json& next) {
  const Json& role = *next.find("role");
  return role == *last.find("role") && role != Json("tool");
}

// Makes one turn of adjacent turns of one role.
Json as_one_turn(std::span<const Json> turns) {
  const Json& role = *turns.front().find("role");
  TurnContent content(role == Json("assistant") ? "" : "\n");
  TurnContent reasoning;
  Json calls = Json::array();
  for (const Json& turn : turns) {
    content.add_content(*turn.find("content"));
    if (const Json* more = turn.find("reasoning_content")) reasoning.add_text(more->as_string());
    if (const Json* more = turn.find("tool_calls"))
      for (const Json& call : more->as_array()) calls.push_back(call);
  }
  Json out = Json::object();
  out.set("role", role).set("content", content.take());
  if (!reasoning.empty()) out.set("reasoning_content", reasoning.take());
  if (!calls.as_array().empty()) out.set("tool_calls", std::move(calls));
  return out;
}

}  // namespace

Json join_turns(Json turns) {
  Json::Array& list = turns.as_array();
  Json out = Json::array();
  for (auto begin = list.begin(); begin != list.end();) {
    const auto end = std::find_if_not(begin + 1, list.end(), [&](const Json& next) { return may_join(*begin, next); });
    out.push_back(end - begin == 1 ? std::move(*begin) : as_one_turn({begin, end}));
    begin = end;
  }
  return out;
}

}  // namespace tessera
