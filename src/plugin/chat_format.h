// Makes chat formats from plugins' tables.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/text/chat/chat_format.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// Makes a format from a plugin's table. kInvalidArgument if the table lacks something, or if the format finds nothing
// in its own example or reads it differently byte by byte. The format stays valid while the plugin is loaded.
Result<std::shared_ptr<const ChatFormat>> make_plugin_chat_format(const tessera_plugin_chat_format* given);

}  // namespace tessera::plugin
