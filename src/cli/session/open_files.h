// Raises this process's limit of open files, which also limits connections.
#pragma once

namespace tessera::cli {

// Raises the limit of open files to 2^18, or to the system's maximum if that is less. The usual limit of 1024 is too
// small for a server's clients.
void allow_open_files();

}  // namespace tessera::cli
