// Standard output and standard error of the command.
#pragma once

#include <string_view>

#include "tessera/base/status.h"

namespace tessera::cli {

// Writes at once, not when a buffer is full. Fails where standard output takes no more: a full disk, a
// closed descriptor.
Status write_output(std::string_view text);

// Writes to standard error. A failure is ignored: there is nobody to tell.
void write_error(std::string_view text);

// "tessera: error: <message>", the error that ends the process. Of several calls, from any threads, the first one
// writes.
void write_last_error(std::string_view message);

}  // namespace tessera::cli
