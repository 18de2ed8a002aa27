// A text into a file.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// The file then holds this text alone. The error names it; after one, it may hold a part.
Status write_file(const std::string& path, std::string_view text);

}  // namespace tessera
