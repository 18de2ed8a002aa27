// The limit of open files and connections of this process.
#pragma once

namespace tessera::cli {

// Raises the limit of open files to what the system allows. The default is 1024, which is fewer than a server has
// clients.
void allow_open_files();

}  // namespace tessera::cli
