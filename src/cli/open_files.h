// How many files and connections this process may have open.
#pragma once

namespace tessera::cli {

// As many as the system lets it: by default a process is held to 1024, which is fewer than a server has clients.
void allow_open_files();

}  // namespace tessera::cli
