// Host memory in huge pages. cuMemHostAlloc allocates, clears and pins 4 KiB pages one by one on one thread. For 84 MiB
// that takes 34 to 50 ms on an H200's host. The memory of this file is cleared by several threads in 10 ms, and
// cuMemHostRegister pins it in 3.
#pragma once

#include <cstddef>

namespace tessera {

// Maps at least `bytes` bytes of zeros, which begin at a multiple of a huge page's size. All of these pages exist when
// the function returns. A system without huge pages gives ordinary pages. Returns null if the system has too little
// memory. The caller passes the memory to unmap_huge_pages() with the same size. Any thread may call both functions.
std::byte* map_huge_pages(std::size_t bytes);
void unmap_huge_pages(std::byte* data, std::size_t bytes);

}  // namespace tessera
