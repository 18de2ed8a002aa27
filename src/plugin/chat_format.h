// Chat formats from outside.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/text/chat_format.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// kInvalidArgument for what is missing in the table, and for a format that reads its own example in another way when it
// comes byte by byte, or that finds nothing in it. The format stays valid as long as the plugin is loaded.
Result<std::shared_ptr<const ChatFormat>> make_plugin_chat_format(const tessera_plugin_chat_format* given);

}  // namespace tessera::plugin
