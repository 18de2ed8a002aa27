// Raises this process's limit of open files and connections.
#pragma once

namespace tessera::cli {

// Raises the limit of open files to 2^18, or to what the system allows if that is less. The default is 1024, which is
// fewer than a server has clients.
void allow_open_files();

}  // namespace tessera::cli
