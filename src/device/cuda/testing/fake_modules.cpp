// Implements the fake driver's functions for code that is loaded at run time. Its only "kernel" adds one to the byte
// that the first argument points to.
#include "tessera/device/cuda/testing/fake_driver_state.h"

namespace tessera {

void FakeFunctions::set_modules(Driver& t) {
  t.cuModuleLoadData = [](CUmodule* module, const void* code) {
    return unsafe("cuModuleLoadData", [&](auto& s) {
      if (*static_cast<const char*>(code) != 'c') return CUDA_ERROR_INVALID_IMAGE;
      *module = handle_of<CUmodule>(++s.last_handle);
      s.modules.insert(*module);
      return CUDA_SUCCESS;
    });
  };
  t.cuModuleUnload = [](CUmodule module) {
    return unsafe("cuModuleUnload",
                  [&](auto& s) { return s.modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
  };
  t.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) {
    return with_context("cuModuleGetFunction", [&](auto& s) {
      *function = reinterpret_cast<CUfunction>(module);
      return s.modules.contains(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
  };
  t.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    return with_context("cuLaunchKernelEx", [&](auto& s) {
      if (!s.modules.contains(reinterpret_cast<CUmodule>(function))) return CUDA_ERROR_INVALID_HANDLE;
      auto* const counter = reinterpret_cast<unsigned char*>(*static_cast<std::size_t*>(parameters[0]));
      return s.enqueue(config->hStream, [counter] { ++*counter; });
    });
  };
}

}  // namespace tessera
