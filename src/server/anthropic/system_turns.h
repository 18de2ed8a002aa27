// System messages in the middle of a conversation, which agents send, and templates that know a system message only at
// its beginning or not at all. Such a message stays in its place, so that the prompt before it stays the same from
// request to request: moving it to the front would empty the prefix cache.
#pragma once

#include "tessera/base/json.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {

// Where a template prints a system message.
struct SystemPlaces {
  bool in_front = true;  // as the first message
  bool in_place = true;  // behind a user's message, before the assistant's answer
};

// Renders short conversations with the template to find out. The places of `turns` alone are looked at: without a
// system message there, the cost is that of reading the roles.
SystemPlaces find_system_places(const Json& turns, const ChatTemplate& chat, const RenderOptions& options);

// Makes a system message where the template prints none the user's, between <system> and </system>. Then joins adjacent
// turns of one role, because some templates require the roles to alternate. `turns`: as read_turns() returns them.
Json fit_turns(const Json& turns, const SystemPlaces& places);

}  // namespace tessera
