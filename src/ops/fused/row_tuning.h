// Binds row kernels with the fastest measured schedule, and measures schedules.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

// Binds the kernel with its fastest measured schedule. `kernel` is row_kernel_key(); `name` is the group's name. If
// there are several schedules and none was measured, it notes the kernel at this number of rows for idle moments, and
// takes the device's default.
Result<std::unique_ptr<BoundOp>> bind_row_kernel(const std::shared_ptr<const RowKernelCode>& code,
                                                 const std::string& kernel, const std::string& name,
                                                 const BindArgs& args, RowSchedules& known = row_schedules());

// Times the schedules of one noted kernel that nobody has measured, and keeps the fastest for later binds and later
// processes. It takes some ten milliseconds, and memory of its own meanwhile. The kernel keeps its schedule if there is
// too little memory, if it takes too long, or if the times differ more than schedules can. A schedule with other bits
// is a fault of the device's code: it causes a warning and is not used. Returns false if no kernel is left to measure,
// and kDeviceLost if the device is lost. Precondition: nothing runs on `device`.
Result<bool> measure_row_schedules(Device& device, RowSchedules& known = row_schedules());

}  // namespace tessera
