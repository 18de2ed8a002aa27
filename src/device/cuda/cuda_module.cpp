#include "tessera/device/cuda/cuda_module.h"

namespace tessera {

Result<std::unique_ptr<CudaModule>> CudaModule::load(CudaDevice& device, std::string entry, const std::string& code) {
  TRY(device.enter(DeviceCall::kInitialiseLibrary, entry));
  std::unique_ptr<CudaModule> module(new CudaModule(device, std::move(entry)));
  const Driver& driver = device.driver();
  TRY(device.check(driver.cuModuleLoadData(&module->module_, code.data()),
                   {"cuModuleLoadData", DeviceCall::kInitialiseLibrary, module->entry_}));
  TRY(device.check(driver.cuModuleGetFunction(&module->function_, module->module_, module->entry_.c_str()),
                   {"cuModuleGetFunction", DeviceCall::kInitialiseLibrary, module->entry_}));
  return module;
}

CudaModule::~CudaModule() {
  if (module_ == nullptr) return;
  device_.release([&driver = device_.driver(), module = module_] { (void)driver.cuModuleUnload(module); });
}

Status CudaModule::launch(CudaStream& stream, const CudaLaunchShape& shape,
                          std::span<const std::uint64_t> arguments) const {
  if (shape.blocks == 0) return ok_status();
  TRY(stream.begin_launch(entry_.c_str()));
  CUlaunchAttribute serialization{};
  serialization.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  serialization.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(shape.blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(shape.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream.handle();
  config.attrs = &serialization;
  config.numAttrs = shape.early ? 1 : 0;
  // The driver only reads the words, so casting const away is safe.
  void* parameters[] = {const_cast<std::uint64_t*>(arguments.data())};
  return device_.check(device_.driver().cuLaunchKernelEx(&config, function_, parameters, nullptr),
                       {"cuLaunchKernelEx", DeviceCall::kLaunch, entry_});
}

}  // namespace tessera
