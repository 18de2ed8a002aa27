// The oracle for a vision tower: each captured budget, after all captures, against the same kernels on isolated memory,
// bit for bit, full and padded as far as dispatch pads. Padded patches are NaN, and images have other grids in each
// forward: what reads a row that is not its image's shows.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/verify/verify.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

// A row for each forward that was compared. Precondition: no forward is in flight. Needs room for one isolated copy of
// the largest captured budget.
Result<std::vector<VerifyRow>> verify_vision(VisionRunner& vision);

}  // namespace tessera
