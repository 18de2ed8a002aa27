#include "tessera/comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tessera {
namespace {

// Values of ncclResult_t for errors that the caller made.
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;

// Returns the text of dlerror(), or another text if dlerror() returns null.
std::string loader_error() {
  const char* error = dlerror();
  return error == nullptr ? "no reason is given" : error;
}

template <class F>
Status find(void* library, const std::string& file, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function != nullptr) return ok_status();
  return unimplemented(fmt::format("{} has no function {}; NCCL {} and later have it", file, name,
                                   NcclLibrary::version_text(NcclLibrary::kOldest)));
}

}  // namespace

std::string NcclLibrary::version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return not_found(
        fmt::format("GPUs of several processes exchange values by NVIDIA's NCCL, whose library {} cannot be loaded "
                    "({}); it is in NVIDIA's package libnccl2 and in the folder nvidia/nccl/lib of the wheel "
                    "nvidia-nccl-cu12 or -cu13, which LD_LIBRARY_PATH may name",
                    file, loader_error()));
  std::shared_ptr<NcclLibrary> nccl(new NcclLibrary);
  NcclFunctions& call = nccl->call_;
  TRY(find(library, file, "ncclGetVersion", call.get_version));
  TRY(find(library, file, "ncclGetErrorString", call.get_error_string));
  TRY(find(library, file, "ncclGetLastError", call.get_last_error));
  TRY(find(library, file, "ncclGetUniqueId", call.get_unique_id));
  TRY(find(library, file, "ncclCommInitRank", call.init_rank));
  TRY(find(library, file, "ncclCommGetAsyncError", call.get_async_error));
  TRY(find(library, file, "ncclCommAbort", call.abort));
  TRY(find(library, file, "ncclAllReduce", call.all_reduce));
  TRY(find(library, file, "ncclSend", call.send));
  TRY(find(library, file, "ncclRecv", call.receive));
  TRY(find(library, file, "ncclAllGather", call.all_gather));
  TRY(find(library, file, "ncclReduceScatter", call.reduce_scatter));
  TRY(nccl->check(call.get_version(&nccl->version_), "ncclGetVersion"));
  if (nccl->version_ < kOldest)
    return unimplemented(
        fmt::format("{} is NCCL {}; {} and later are accepted", file, nccl->version_text(), version_text(kOldest)));
  return std::shared_ptr<const NcclLibrary>(std::move(nccl));
}

Status NcclLibrary::check(int result, std::string_view function) const {
  if (result == kNcclSuccess) return ok_status();
  const char* const last = call_.get_last_error(nullptr);
  const bool more = last != nullptr && *last != '\0';
  std::string text = fmt::format("{}: {}{}{}", function, call_.get_error_string(result), more ? ": " : "",
                                 more ? last : "; NCCL_DEBUG=WARN in the environment says more");
  if (result == kInvalidArgument || result == kInvalidUsage) return internal_error(std::move(text));
  return device_lost(std::move(text));
}

}  // namespace tessera
