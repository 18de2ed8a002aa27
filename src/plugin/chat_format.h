// Makes chat formats from plugins' tables.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/text/chat/chat_format.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a format from a plugin's table. Returns kInvalidArgument if the table lacks a member, if the format finds
// nothing in its own example, or if it reads the example differently when it gets one byte at a time. The format stays
// valid while the plugin is loaded.
Result<std::shared_ptr<const ChatFormat>> make_plugin_chat_format(const tessera_plugin_chat_format* given);

}  // namespace tessera::plugin
