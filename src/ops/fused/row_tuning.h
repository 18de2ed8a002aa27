// Binds row kernels by the schedule that was measured to be the fastest, and measures.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

// `kernel`: row_kernel_key(); `name`: the group's. Where there are several schedules and none was measured, the kernel
// at its number of rows is noted for idle moments, and takes the device's own.
Result<std::unique_ptr<BoundOp>> bind_row_kernel(const std::shared_ptr<const RowKernelCode>& code,
                                                 const std::string& kernel, const std::string& name,
                                                 const BindArgs& args, RowSchedules& known = row_schedules());

// Times the schedules of one noted kernel that nobody has measured, and keeps the fastest: for what is bound from then
// on, and for later processes. Takes some ten milliseconds, and memory of its own for as long; where there is too
// little, it takes too long, or the times differ as no schedules do, the kernel keeps its schedule. A schedule whose
// bits differ is a fault of the device's code: it is warned of, and not taken. False where none is left; kDeviceLost
// where the device is. Nothing runs on `device`.
Result<bool> measure_row_schedules(Device& device, RowSchedules& known = row_schedules());

}  // namespace tessera
