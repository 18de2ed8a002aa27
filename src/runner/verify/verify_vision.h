// The oracle for a vision tower: compares each captured budget, after all captures, bit for bit with the same kernels
// on isolated memory. Each budget is compared full and padded as far as dispatch pads. Padded patches are NaN, and the
// images have other grids in each forward, so a read of a row of another image shows.
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
