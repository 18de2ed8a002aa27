// Joins adjacent turns of one role, because some templates require the roles of the user and the assistant to
// alternate.
#pragma once

#include "tessera/base/json.h"

namespace tessera {

// Returns messages (ChatMessages::list) in which adjacent turns of one role are one turn. Turns of the role "tool" stay
// as they are.
Json join_turns(Json turns);

}  // namespace tessera
