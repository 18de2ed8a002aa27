// Which code of a kernel the device runs: some instructions are in that for sm_90a alone.
#pragma once

namespace tessera {

// Whether the current device runs a kernel's code for sm_90a, which no other architecture does and which a build may
// be without. `kernel`: as cudaFuncGetAttributes takes it. False too where the device does not answer: another kernel
// is taken, and a device that fails is found by its launch.
bool runs_sm90a_code(const void* kernel);

}  // namespace tessera
