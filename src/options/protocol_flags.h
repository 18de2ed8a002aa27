// Defines the flags of programs that answer requests in the server's protocols, over HTTP or within a process. The
// flags set the model's name, the format in which chats are written and read, and what a request may ask for.
#pragma once

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"
#include "tessera/server/server_options.h"

namespace tessera {

// Values of flags for which ServerOptions has no member.
struct ProtocolFlags {
  bool compact_json = false;
  bool enable_multimodal = false;
  bool auto_tool_choice = true;
};

// Adds the flags to the current group. Parsing them fills `server`, `engine` and `flags`.
void add_protocol_flags(CommandFlags& add, ServerOptions& server, EngineOptions& engine, ProtocolFlags& flags);

// Checks and completes the options that depend on several flags. Call it after all flags are taken. Call it before
// engine.model_path is replaced by the model's folder, because the served name defaults to the model's name as it was
// given.
Status finish_protocol_flags(const ProtocolFlags& flags, const EngineOptions& engine, ServerOptions& server);

}  // namespace tessera
