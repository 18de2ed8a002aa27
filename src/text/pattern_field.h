// {"String": "text"} or {"Regex": "pattern"}: how tokenizer.json writes what to look for.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/field.h"
#include "tessera/text/split_pattern.h"

namespace tessera {

Result<SplitPattern> make_pattern(const Field& field);

}  // namespace tessera
