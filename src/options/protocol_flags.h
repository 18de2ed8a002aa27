// The flags of programs that answer requests in the server's protocols, over HTTP or within a process: what the model
// is called, how chats are written and read, what a request may ask for.
#pragma once

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/options/flags.h"
#include "tessera/server/server_options.h"

namespace tessera {

// What the flags say beside ServerOptions.
struct ProtocolFlags {
  bool compact_json = false;
  bool enable_multimodal = false;
  bool auto_tool_choice = true;
};

// `server`, `engine` and `flags` are filled when the flags are parsed. They are added to the group that stands.
void add_protocol_flags(CommandFlags& add, ServerOptions& server, EngineOptions& engine, ProtocolFlags& flags);

// Checks and fills in what no single flag can tell. Call it once all are taken, and before a folder takes the place of
// a model's name.
Status finish_protocol_flags(const ProtocolFlags& flags, const EngineOptions& engine, ServerOptions& server);

}  // namespace tessera
