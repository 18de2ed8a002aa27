#include "tessera/device/cuda/vmm_arena.h"

#include <algorithm>

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

// Returns whether the result means that the driver does not support the requested kind of memory. For a lack of memory,
// the driver returns another error.
bool refuses_kind(CUresult result) {
  return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED ||
         result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

Result<std::unique_ptr<VmmArena>> VmmArena::create(CudaDevice& device, ArenaOptions options) {
  std::unique_ptr<VmmArena> arena(new VmmArena(device, std::move(options)));
  TRY(arena->read_properties());
  // GPU addresses have 49 bits. The bound also prevents an overflow in align_up().
  constexpr std::size_t kMostBytes = std::size_t{1} << 49;
  const ArenaOptions& wanted = arena->options_;
  if (wanted.reserve_bytes > kMostBytes) return out_of_addresses(wanted.name, wanted.reserve_bytes);
  const std::size_t reserve = align_up(std::max<std::size_t>(wanted.reserve_bytes, 1), arena->granularity_);
  CUdeviceptr base = 0;
  const CUresult result = device.driver().cuMemAddressReserve(&base, reserve, arena->granularity_, 0, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_addresses(wanted.name, wanted.reserve_bytes);
  TRY(device.check(result, {"cuMemAddressReserve", DeviceCall::kCreateArena, wanted.name, reserve}));
  arena->base_ = pointer_of(base);
  arena->reserved_ = reserve;
  return arena;
}

Status VmmArena::read_properties() {
  const Driver& driver = device_.driver();
  const auto supports = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.cuDeviceGetAttribute(&value, attribute, device_.handle()) == CUDA_SUCCESS && value != 0;
  };
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_.handle()};
  if (supports(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  if (supports(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
    properties_.allocFlags.gpuDirectRDMACapable = 1;
  }
  return device_.check(
      driver.cuMemGetAllocationGranularity(&granularity_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      {"cuMemGetAllocationGranularity", DeviceCall::kCreateArena, options_.name});
}

VmmArena::~VmmArena() {
  if (base_ == nullptr) return;
  if (size_ > 0) device_.recording().note_freed(options_.name);
  device_.release(
      [&driver = device_.driver(), base = address_of(base_), reserved = reserved_, pieces = std::move(pieces_)] {
        for (const Piece& piece : pieces) {
          (void)driver.cuMemUnmap(piece.address, piece.bytes);
          (void)driver.cuMemRelease(piece.handle);
        }
        (void)driver.cuMemAddressFree(base, reserved);
      });
}

Status VmmArena::grow(std::size_t bytes) {
  TRY(device_.enter(DeviceCall::kGrowArena, options_.name));
  if (bytes <= size_) return ok_status();
  if (bytes > reserved_) return past_reserved(options_.name, bytes, reserved_);
  const std::size_t size = options_.single_handle ? reserved_ : align_up(bytes, granularity_);
  // Sizes above the GPU's memory are an error here, because the driver's arithmetic overflows for very large sizes.
  if (size - size_ > static_cast<std::size_t>(device_.properties().memory_bytes)) {
    return out_of_device_memory(DeviceCall::kGrowArena, options_.name, size - size_, device_.available_bytes());
  }
  Piece piece{.address = address_of(base_ + size_), .bytes = size - size_};
  pieces_.reserve(pieces_.size() + 1);
  TRY(create_handle(piece));
  Status mapped = map(piece);
  if (!mapped.ok()) {
    (void)device_.driver().cuMemRelease(piece.handle);
    return mapped;
  }
  pieces_.push_back(piece);
  size_ = size;
  return ok_status();
}

Status VmmArena::create_handle(Piece& piece) {
  const Driver& driver = device_.driver();
  CUresult result = driver.cuMemCreate(&piece.handle, piece.bytes, &properties_, 0);
  if (refuses_kind(result) && rdma_capable()) {
    properties_.allocFlags.gpuDirectRDMACapable = 0;
    result = driver.cuMemCreate(&piece.handle, piece.bytes, &properties_, 0);
  }
  if (refuses_kind(result) && exportable()) {
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    result = driver.cuMemCreate(&piece.handle, piece.bytes, &properties_, 0);
  }
  return device_.check(result, {"cuMemCreate", DeviceCall::kGrowArena, options_.name, piece.bytes});
}

Status VmmArena::map(const Piece& piece) {
  const Driver& driver = device_.driver();
  TRY(device_.check(driver.cuMemMap(piece.address, piece.bytes, 0, piece.handle, 0),
                    {"cuMemMap", DeviceCall::kGrowArena, options_.name, piece.bytes}));
  const CUmemAccessDesc access{.location = properties_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult result = driver.cuMemSetAccess(piece.address, piece.bytes, &access, 1);
  if (result != CUDA_SUCCESS) (void)driver.cuMemUnmap(piece.address, piece.bytes);
  return device_.check(result, {"cuMemSetAccess", DeviceCall::kGrowArena, options_.name, piece.bytes});
}

}  // namespace tessera
