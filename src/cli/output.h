// Writes to standard output and standard error.
#pragma once

#include <string_view>

#include "tessera/base/status.h"

namespace tessera::cli {

// Writes to standard output at once, without buffering. Returns an error if the write fails, for example because the
// disk is full.
Status write_output(std::string_view text);

// Writes to standard error. A failure is ignored, because it cannot be reported.
void write_error(std::string_view text);

// Writes "tessera: error: <message>", the error that ends the process. Only the first call in the process writes. Calls
// on other threads wait until the first call has written.
void write_last_error(std::string_view message);

}  // namespace tessera::cli
