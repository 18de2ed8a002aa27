// Tells which code of a kernel the device runs: some instructions exist only in code for sm_90a.
#pragma once

namespace tessera {

// Returns whether the current device runs a kernel's code for sm_90a. No other architecture does, and a build may lack
// it. `kernel` is what cudaFuncGetAttributes takes. Returns false also if the device does not answer: then another
// kernel is taken, and its launch reports the failure of the device.
bool runs_sm90a_code(const void* kernel);

}  // namespace tessera
