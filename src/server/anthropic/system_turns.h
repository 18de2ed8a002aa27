// Handles system messages in the middle of a conversation. Agents send such messages, but many templates accept a
// system message only at the beginning or not at all. A message stays in its place, so that the prompt before the
// message stays the same from request to request. If the message moved to the front, the prefix cache would no longer
// match.
#pragma once

#include "tessera/base/json.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

// The places at which a template prints a system message.
struct SystemPlaces {
  bool in_front = true;  // the template prints it as the first message
  bool in_place = true;  // the template prints it between a user's message and the assistant's answer
};

// Finds the places by rendering short conversations with the template. Tries only places at which `turns` has a system
// message. If there is no system message, renders nothing.
SystemPlaces find_system_places(const Json& turns, const ChatTemplate& chat, const RenderOptions& options);

// Returns `turns`, the result of read_turns(), in a form that the template prints. A system message that the template
// would not print becomes a user's message with the text between <system> and </system>. Adjacent turns of one role are
// joined, except turns of the role "tool", because some templates require the roles to alternate.
Json fit_turns(Json turns, const SystemPlaces& places);

}  // namespace tessera
