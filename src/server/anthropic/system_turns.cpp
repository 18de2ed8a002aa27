#include "tessera/server/anthropic/system_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/server/openai/join_turns.h"
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
  return join_turns(std::move(turns));
}

}  // namespace tessera
