// Shows the compiled form of a prefill, for `explain --graph program:N` and `explain --graph entries`.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera::cli {

// Returns whether the name is "program:N" or "entries".
bool names_program(std::string_view name);

// Returns the text for a name. The parts of a forward are its pieces and the operators between them. "program:N" shows
// the program of part N: its values, its instructions with their kernels, and the bytes of each instruction at the
// largest prefill size. "entries" shows the entry (PartEntry) of each part at each prefill size, as it is before the
// part is bound. Compiles the graph, but takes no device memory. Returns kInvalidArgument for a part that does not
// exist. Precondition: names_program(name).
Result<std::string> shown_program(const EnginePlan& plan, Device& device, std::string_view name);

}  // namespace tessera::cli
