// Tells whether the device runs code for sm_90a. Some instructions exist only in such code.
#pragma once

namespace tessera {

// Returns whether the current device runs a kernel's code for sm_90a. No other architecture runs such code, and some
// builds do not contain it. `kernel` is a pointer as cudaFuncGetAttributes() takes it. Also returns false if the device
// does not answer. The caller then uses another kernel, whose launch reports the failure of the device.
bool runs_sm90a_code(const void* kernel);

}  // namespace tessera
