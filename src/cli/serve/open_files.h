// How many files and connections this process may have open.
#pragma once

namespace tessera::cli {

// Raises the number of files that the process may have open to what the system allows. The default is 1024, which is
// fewer than a server has clients.
void allow_open_files();

}  // namespace tessera::cli
