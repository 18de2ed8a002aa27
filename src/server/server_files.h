// Checks the files and folders that a server's options name.
#pragma once

#include "tessera/base/status.h"
#include "tessera/server/server_options.h"

namespace tessera {

// Checks, before there is an engine, that the access log and the folder of files can be written and that no other
// server uses the folder. Creates them if they do not exist. Errors begin with the name of the flag.
Status check_server_files(const ServerOptions& options);

}  // namespace tessera
