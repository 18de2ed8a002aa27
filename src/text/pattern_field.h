// Reads a pattern of tokenizer.json: {"String": "text"} or {"Regex": "pattern"}.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/field.h"
#include "tessera/text/split_pattern.h"

namespace tessera {

Result<SplitPattern> make_pattern(const Field& field);

}  // namespace tessera
