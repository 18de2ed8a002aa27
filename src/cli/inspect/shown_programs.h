// What prefill is compiled to, as `explain --graph program:N` and `explain --graph entries` print it.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_plan.h"

namespace tessera::cli {

// Whether the name is "program:N" or "entries".
bool names_program(std::string_view name);

// program:N: the program of part N with its values, instructions and kernels, bytes at the largest prefill size.
// entries: each part at each prefill size, as they are before anything is bound. Compiles, and takes no memory of the
// device. kInvalidArgument for a part that does not exist. Precondition: names_program(name).
Result<std::string> shown_program(const EnginePlan& plan, Device& device, std::string_view name);

}  // namespace tessera::cli
