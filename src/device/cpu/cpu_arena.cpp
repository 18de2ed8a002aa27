#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/cpu_memory.h"
#include "tessera/device/huge_page.h"

namespace tessera {
namespace {

// Allocations of at least this size are mapped by mmap(2), so that the system gets the memory back as soon as they are
// freed.
constexpr std::size_t kMapFrom = std::size_t{1} << 20;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Requests huge pages, which cause fewer TLB misses. An operating system without huge pages ignores the hint.
void advise_huge_pages(void* data, std::size_t bytes) {
  if (bytes >= kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);
}

}  // namespace

bool CpuAllocation::mapped() const { return size_ >= kMapFrom; }

Result<std::unique_ptr<CpuAllocation>> CpuAllocation::create(CpuDevice& device, std::size_t bytes,
                                                             std::string_view name) {
  std::unique_ptr<CpuAllocation> allocation(new CpuAllocation(device, name));
  void* data = nullptr;
  if (bytes >= kMapFrom) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) data = nullptr;
    if (data != nullptr) advise_huge_pages(data, bytes);
  } else if (bytes > 0) {
    data = std::aligned_alloc(kDeviceAlignment, align_up(bytes));
  }
  if (data == nullptr && bytes > 0) {
    return out_of_device_memory(DeviceCall::kAllocate, name, bytes, device.available_bytes());
  }
  allocation->data_ = static_cast<std::byte*>(data);
  allocation->size_ = bytes;
  return allocation;
}

CpuAllocation::~CpuAllocation() {
  if (data_ == nullptr) return;
  device_.recording_.note_freed(name_);
  device_.give_back(size_);
  if (mapped()) {
    munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

Result<std::unique_ptr<CpuArena>> CpuArena::create(CpuDevice& device, ArenaOptions options) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 62;
  std::unique_ptr<CpuArena> arena(new CpuArena(device, std::move(options.name)));
  void* mapping = MAP_FAILED;
  if (options.reserve_bytes <= kMostBytes) {
    arena->reserved_ = align_up(options.reserve_bytes, page_bytes());
    arena->mapping_bytes_ = arena->reserved_ + kHugePage;
    mapping = mmap(nullptr, arena->mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (mapping == MAP_FAILED) return out_of_addresses(arena->name_, options.reserve_bytes);
  arena->mapping_ = mapping;
  const std::size_t address = reinterpret_cast<std::size_t>(mapping);
  arena->base_ = static_cast<std::byte*>(mapping) + (align_up(address, kHugePage) - address);
  advise_huge_pages(arena->base_, arena->reserved_);
  if (!device.properties().arenas_grow) TRY(arena->grow(arena->reserved_));
  return arena;
}

CpuArena::~CpuArena() {
  if (mapping_ == nullptr) return;
  if (size_ > 0) device_.recording_.note_freed(name_);
  device_.give_back(size_);
  munmap(mapping_, mapping_bytes_);
}

Status CpuArena::grow(std::size_t bytes) {
  TRY(device_.enter(DeviceCall::kGrowArena, name_));
  if (bytes <= size_) return ok_status();
  if (bytes > reserved_) return past_reserved(name_, bytes, reserved_);
  const std::size_t size = align_up(bytes, page_bytes());
  const std::size_t more = size - size_;
  TRY(device_.claim(DeviceCall::kGrowArena, name_, more));
  if (mprotect(base_ + size_, more, PROT_READ | PROT_WRITE) != 0) {
    device_.give_back(more);
    return out_of_device_memory(DeviceCall::kGrowArena, name_, more, device_.available_bytes());
  }
  size_ = size;
  return ok_status();
}

}  // namespace tessera
