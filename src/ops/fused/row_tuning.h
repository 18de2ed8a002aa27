// Binds row kernels with the fastest measured schedule, and measures schedules.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/fused/row_schedules.h"

namespace tessera {

// Binds the kernel with its fastest measured schedule. `kernel` is the kernel's row_kernel_key(), and `name` is the
// name of the kernel's group of operators. If there are several schedules and none was measured, the function uses the
// device's default, and notes the kernel and its number of rows, so that they can be measured in an idle moment.
Result<std::unique_ptr<BoundOp>> bind_row_kernel(const std::shared_ptr<const RowKernelCode>& code,
                                                 const std::string& kernel, const std::string& name,
                                                 const BindArgs& args, RowSchedules& known = row_schedules());

// Times the schedules of one noted kernel that no process has measured, and keeps the fastest for later binds and later
// processes. The function takes tens of milliseconds, and allocates memory that it frees again. The default schedule
// stays if there is too little memory, if the kernel takes too long, or if the times differ by more than schedules can
// explain. If a schedule gives results with other bits than the default schedule, the device's code is faulty, so the
// function warns and does not use the schedule. Returns false if no kernel is left to measure, and kDeviceLost if the
// device is lost. Precondition: nothing runs on `device`.
Result<bool> measure_row_schedules(Device& device, RowSchedules& known = row_schedules());

}  // namespace tessera
