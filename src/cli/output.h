// Writes to standard output and standard error.
#pragma once

#include <string_view>

#include "tessera/base/status.h"

namespace tessera::cli {

// Writes to standard output at once, without waiting for a full buffer. Fails if it accepts no more: a full disk, a
// closed descriptor.
Status write_output(std::string_view text);

// Writes to standard error. A failure is ignored, because it cannot be reported.
void write_error(std::string_view text);

// Writes "tessera: error: <message>", the error that ends the process. Only the first of several calls writes, from
// whichever threads they come.
void write_last_error(std::string_view message);

}  // namespace tessera::cli
