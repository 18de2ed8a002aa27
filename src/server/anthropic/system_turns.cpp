#include "tessera/server/anthropic/system_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/anthropic/content_blocks.h"
#include "tessera/server/tools/generic_tools.h"

namespace tessera {
namespace {

std::string_view role_of(const Json& turn) { return turn.find("role")->as_string(); }

Json turn_of(std::string_view role, std::string content) {
  Json turn = Json::object();
  turn.set("role", role).set("content", std::move(content));
  return turn;
}

// Returns whether the template prints a system message where it stands: after the user's message and before the
// assistant's. If `after_another`, the conversation also begins with a system message.
bool prints_in_place(const ChatTemplate& chat, const RenderOptions& options, bool after_another) {
  constexpr std::string_view kAsked = "what the user asks";
  constexpr std::string_view kSystem = "what the system says";
  constexpr std::string_view kAnswer = "what the assistant answers";
  Json turns = Json::array();
  if (after_another) turns.push_back(turn_of("system", "what was said first"));
  turns.push_back(turn_of("user", std::string(kAsked)));
  turns.push_back(turn_of("system", std::string(kSystem)));
  turns.push_back(turn_of("assistant", std::string(kAnswer)));
  turns.push_back(turn_of("user", "hello"));
  const Result<std::string> prompt = chat.render(turns, options);
  if (!prompt.ok()) return false;
  const std::size_t asked = prompt->find(kAsked);
  const std::size_t system = prompt->find(kSystem);
  const std::size_t answer = prompt->find(kAnswer);
  return asked < system && system < answer && answer != std::string::npos;
}

bool may_join(const Json& last, const Json& next) { return role_of(last) == role_of(next) && role_of(next) != "tool"; }

// Joins adjacent turns of one role.
Json joined(std::span<const Json> turns) {
  TurnContent content(role_of(turns.front()) == "assistant" ? "" : "\n");
  TurnContent reasoning;
  Json calls = Json::array();
  for (const Json& turn : turns) {
    content.add_content(*turn.find("content"));
    if (const Json* more = turn.find("reasoning_content")) reasoning.add_text(more->as_string());
    if (const Json* more = turn.find("tool_calls"))
      for (const Json& call : more->as_array()) calls.push_back(call);
  }
  Json out = Json::object();
  out.set("role", role_of(turns.front())).set("content", content.take());
  if (!reasoning.empty()) out.set("reasoning_content", reasoning.take());
  if (!calls.as_array().empty()) out.set("tool_calls", std::move(calls));
  return out;
}

}  // namespace

SystemPlaces find_system_places(const Json& turns, const ChatTemplate& chat, const RenderOptions& options) {
  const Json::Array& list = turns.as_array();
  const auto is_system = [](const Json& turn) { return role_of(turn) == "system"; };
  const auto after_front = std::ranges::find_if_not(list, is_system);
  SystemPlaces places;
  if (after_front != list.begin()) places.in_front = shows_system_message(chat, options);
  if (std::any_of(after_front, list.end(), is_system))
    places.in_place = prints_in_place(chat, options, places.in_front && after_front != list.begin());
  return places;
}

Json fit_turns(Json turns, const SystemPlaces& places) {
  Json::Array& list = turns.as_array();
  bool in_front = true;
  for (Json& turn : list) {
    const bool system = role_of(turn) == "system";
    in_front = in_front && system;
    if (!system || (in_front ? places.in_front : places.in_place)) continue;
    turn = turn_of("user", fmt::format("<system>\n{}\n</system>", turn.find("content")->as_string()));
  }
  Json out = Json::array();
  for (auto begin = list.begin(); begin != list.end();) {
    const auto end = std::find_if_not(begin + 1, list.end(), [&](const Json& next) { return may_join(*begin, next); });
    out.push_back(end - begin == 1 ? std::move(*begin) : joined({begin, end}));
    begin = end;
  }
  return out;
}

}  // namespace tessera
