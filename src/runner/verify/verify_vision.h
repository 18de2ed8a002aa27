// The oracle for a vision tower. It compares the graph of each budget (a captured number of patches), bit for bit, with
// the same kernels on isolated memory. Each budget is compared without padding and with the maximum padding. Padding
// patches are NaN. The images have different grids in each forward, so that a read of another image's row changes the
// result.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/verify/verify.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

// Returns a row for each compared forward. Precondition: no forward is in flight. Needs memory for one isolated copy of
// the largest captured budget.
Result<std::vector<VerifyRow>> verify_vision(VisionRunner& vision);

}  // namespace tessera
