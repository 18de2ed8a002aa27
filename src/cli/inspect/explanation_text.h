// Writes an explanation as text for a terminal.
#pragma once

#include <string>

#include "tessera/options/explanation.h"

namespace tessera::cli {

std::string to_text(const Explanation& explanation);

}  // namespace tessera::cli
