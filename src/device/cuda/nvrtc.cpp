#include "tessera/device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

namespace tessera {

// The functions, as in NVIDIA's nvrtc.h. They have a C interface that has not changed since CUDA 11.1.
struct Nvrtc::Functions {
  using Program = struct ProgramOfNvrtc*;
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*code_size)(Program, std::size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr const char* kToolkit = "/usr/local/cuda/lib64";

// Returns the folders in which NVIDIA's wheel installs NVRTC for the system's Pythons.
std::vector<fs::path> wheel_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const char* prefix : {"/usr/local/lib", "/usr/lib"})
    for (fs::directory_iterator it(prefix, error), end; !error && it != end; it.increment(error)) {
      if (!it->path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"dist-packages", "site-packages"})
        for (const char* wheel : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})
          folders.push_back(it->path() / packages / wheel);
    }
  return folders;
}

void* open_library(std::vector<std::string>& tried) {
  std::vector<fs::path> folders{fs::path(), fs::path(kToolkit)};
  for (fs::path& folder : wheel_folders()) folders.push_back(std::move(folder));
  for (const fs::path& folder : folders)
    for (const char* name : kNames) {
      const std::string path = (folder / name).string();
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
      if (folder.empty() || folder == kToolkit) tried.push_back(path);
    }
  return nullptr;
}

}  // namespace

Result<const Nvrtc*> Nvrtc::load() {
  struct Loaded {
    Functions functions;
    Status status;
  };
  static const Loaded loaded = [] {
    Loaded l;
    std::vector<std::string> tried;
    void* library = open_library(tried);
    if (library == nullptr) {
      l.status =
          not_found(fmt::format("no NVRTC, CUDA's compiler as a library: looked for {} and in NVIDIA's Python wheels; "
                                "install CUDA's toolkit or the wheel nvidia-cuda-nvrtc, or name its folder in "
                                "LD_LIBRARY_PATH",
                                fmt::join(tried, ", ")));
      return l;
    }
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr && l.status.ok()) l.status = not_found(fmt::format("NVRTC lacks '{}'", symbol));
    };
    find(l.functions.version, "nvrtcVersion");
    find(l.functions.error_string, "nvrtcGetErrorString");
    find(l.functions.create, "nvrtcCreateProgram");
    find(l.functions.destroy, "nvrtcDestroyProgram");
    find(l.functions.compile, "nvrtcCompileProgram");
    find(l.functions.log_size, "nvrtcGetProgramLogSize");
    find(l.functions.log, "nvrtcGetProgramLog");
    find(l.functions.code_size, "nvrtcGetCUBINSize");
    find(l.functions.code, "nvrtcGetCUBIN");
    return l;
  }();
  if (!loaded.status.ok()) return loaded.status;
  static const Nvrtc nvrtc(loaded.functions);
  return &nvrtc;
}

std::string Nvrtc::version() const {
  int major = 0;
  int minor = 0;
  (void)functions_->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

Result<std::string> Nvrtc::compile(const std::string& source, std::string_view name, int compute_capability) const {
  Functions::Program program = nullptr;
  const std::string name_text(name);
  if (const int result = functions_->create(&program, source.c_str(), name_text.c_str(), 0, nullptr, nullptr);
      result != 0)
    return internal_error(fmt::format("NVRTC: {}: {}", name, functions_->error_string(result)));
  const std::string arch = fmt::format("--gpu-architecture=sm_{}", compute_capability);
  const char* const options[] = {arch.c_str(), "--std=c++17"};
  const int compiled = functions_->compile(program, static_cast<int>(std::size(options)), options);
  Result<std::string> code = std::string();
  std::size_t bytes = 0;
  if (compiled != 0) {
    std::string log;
    if (functions_->log_size(program, &bytes) == 0 && bytes > 1) {
      log.resize(bytes);
      (void)functions_->log(program, log.data());
      log.resize(bytes - 1);  // drops the terminator
    }
    code = invalid_argument(
        fmt::format("NVRTC: {} for sm_{}: {}\n{}", name, compute_capability, functions_->error_string(compiled), log));
  } else if (functions_->code_size(program, &bytes) != 0 || bytes == 0) {
    code = internal_error(fmt::format("NVRTC: {} for sm_{}: it gave no code", name, compute_capability));
  } else {
    code->resize(bytes);
    if (const int result = functions_->code(program, code->data()); result != 0)
      code = internal_error(fmt::format("NVRTC: {}: {}", name, functions_->error_string(result)));
  }
  (void)functions_->destroy(&program);
  return code;
}

}  // namespace tessera
