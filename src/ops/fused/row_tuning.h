// Binds row kernels with the schedule that was measured to be the fastest, and measures schedules.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

// `kernel` is row_kernel_key() and `name` is the group's name. A kernel with several schedules and no measurement is
// bound with the device's own schedule, and is noted with its number of rows for measurement in idle moments.
Result<std::unique_ptr<BoundOp>> bind_row_kernel(const std::shared_ptr<const RowKernelCode>& code,
                                                 const std::string& kernel, const std::string& name,
                                                 const BindArgs& args, RowSchedules& known = row_schedules());

// Times the schedules of one noted kernel that nobody has measured, and keeps the fastest for later binds and later
// processes. It takes some ten milliseconds, and allocates memory of its own for that time. The kernel keeps its
// schedule where memory is short, where the measurement takes too long, or where the times differ more than schedules
// can explain. A schedule with different bits is a fault of the device's code: it is logged as a warning and not used.
// Returns false where no problem is left, and kDeviceLost where the device is lost. Precondition: nothing else runs on
// `device`.
Result<bool> measure_row_schedules(Device& device, RowSchedules& known = row_schedules());

}  // namespace tessera
