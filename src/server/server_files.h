// Checks the files and folders that a server's options name.
#pragma once

#include "tessera/base/status.h"
#include "tessera/server/server_options.h"

namespace tessera {

// Checks, before there is an engine, that the access log can be written. Creates it if it does not exist. Errors begin
// with the name of the flag.
Status check_server_files(const ServerOptions& options);

}  // namespace tessera
