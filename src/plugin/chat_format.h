// Makes chat formats from plugins' tables.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/text/chat/chat_format.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a format from a plugin's table. The table has an example of a model's output, and says whether the format finds
// reasoning, tool calls or both. Returns kInvalidArgument if the table lacks a member, if the format does not find each
// of these in the example, if the arguments of a call in the example are no JSON object, or if the format's result
// differs when it gets the example one byte at a time. The format stays valid while the plugin is loaded.
Result<std::shared_ptr<const ChatFormat>> make_plugin_chat_format(const tessera_plugin_chat_format* given);

}  // namespace tessera::plugin
