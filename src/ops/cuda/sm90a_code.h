// Tells whether the device runs code for sm_90a. Some instructions exist only in such code.
#pragma once

namespace tessera {

// Returns whether the current device runs a kernel's code for sm_90a. No other architecture runs that code, and a build
// may lack it. `kernel` is what cudaFuncGetAttributes takes. Returns false also if the device does not answer: the
// caller then takes another kernel, whose launch reports the failure of the device.
bool runs_sm90a_code(const void* kernel);

}  // namespace tessera
