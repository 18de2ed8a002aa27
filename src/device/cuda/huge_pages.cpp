#include "tessera/device/cuda/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/device/huge_page.h"

namespace tessera {

std::byte* map_huge_pages(std::size_t bytes) {
  const std::size_t mapped = bytes + kHugePage;
  void* const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(all);
  const auto address = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t before = align_up(address, kHugePage) - address;
  std::byte* const data = begin + before;
  if (before > 0) munmap(begin, before);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = align_up(bytes, page);
  if (before + used < mapped) munmap(data + used, mapped - before - used);
  (void)madvise(data, used, MADV_HUGEPAGE);  // a system without huge pages ignores the hint
  // After a fork, a write would give the process another page than the one that the device reads.
  (void)madvise(data, used, MADV_DONTFORK);
  // The first write to a page lets the system clear it.
  const auto count = static_cast<std::int64_t>(align_up(used, kHugePage) / kHugePage);
  parallel_for_dynamic(count, [&](std::int64_t i) {
    const std::size_t first = static_cast<std::size_t>(i) * kHugePage;
    for (std::size_t at = first; at < std::min(first + kHugePage, used); at += page) data[at] = std::byte{0};
  });
  return data;
}

void unmap_huge_pages(std::byte* data, std::size_t bytes) { munmap(data, bytes); }

}  // namespace tessera
