#include "programs.h"

#include "kernel_sources.h"

namespace opencl {
namespace {

const char* type_name(std::int32_t dtype) {
  switch (dtype) {
    case TESSERA_PLUGIN_F32: return "f32";
    case TESSERA_PLUGIN_F16: return "f16";
    case TESSERA_PLUGIN_BF16: return "bf16";
    default: return nullptr;
  }
}

const char* text_of(Source source) {
  switch (source) {
    case Source::kRows: return kRowsSource;
    case Source::kRope: return kRopeSource;
    case Source::kLinear: return kLinearSource;
    case Source::kAttention: return kAttentionSource;
    case Source::kSample: return kSampleSource;
    case Source::kTokens: return kTokensSource;
  }
  return "";
}

std::string build_log(cl_program program, cl_device_id device) {
  std::size_t bytes = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr);
  return log;
}

}  // namespace

std::int32_t Programs::build(Source source, StorageTypes types, Program& program, tessera_plugin_error* error) const {
  const char* x = type_name(types.x);
  const char* y = type_name(types.y);
  if (x == nullptr || y == nullptr)
    return fail(
        error, TESSERA_PLUGIN_UNIMPLEMENTED,
        "dtypes " + std::to_string(types.x) + " and " + std::to_string(types.y) + "; accepted are f32, f16, bf16");
  const bool ordered = source == Source::kSample || source == Source::kTokens;
  const char* texts[] = {kStorageSource, ordered ? kOrderSource : "", text_of(source)};
  cl_int result = CL_SUCCESS;
  Program made(clCreateProgramWithSource(context_, 3, texts, nullptr, &result));
  OPENCL_TRY(check(error, result, "clCreateProgramWithSource"));
  const std::string options = std::string("-cl-std=CL3.0 -DX=") + x + " -DY=" + y;
  result = clBuildProgram(made.get(), 1, &device_, options.c_str(), nullptr, nullptr);
  if (result != CL_SUCCESS)
    return check(error, result, "clBuildProgram " + options + ", " + build_log(made.get(), device_));
  program = std::move(made);
  return TESSERA_PLUGIN_OK;
}

std::int32_t Programs::create_kernel(Source source, const char* name, StorageTypes types, Kernel& kernel,
                                     tessera_plugin_error* error) {
  std::lock_guard lock(mutex_);
  Program& program = built_[{source, types.x, types.y}];
  if (program.get() == nullptr) OPENCL_TRY(build(source, types, program, error));
  cl_int result = CL_SUCCESS;
  kernel = Kernel(clCreateKernel(program.get(), name, &result));
  return check(error, result, std::string("clCreateKernel ") + name);
}

}  // namespace opencl
