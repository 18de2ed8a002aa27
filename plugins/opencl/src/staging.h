// Keeps copies of the data that a stream uploads. The caller may therefore change its memory at once, and an upload
// need not wait for earlier work. Only the stream's thread may use it.
#pragma once

#include <memory>
#include <vector>

#include "cl.h"

namespace opencl {

class Staging {
 public:
  // Enqueues a write of `data` to `bytes` bytes of `buffer` from `offset` on. Waits for the queue if no free block is
  // large enough and a new one would exceed kMostBytes in all.
  std::int32_t write(cl_command_queue queue, cl_mem buffer, std::size_t offset, const void* data, std::size_t bytes,
                     tessera_plugin_error* error);

 private:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
    ClEvent written;  // null: the block was never used
  };
  // Returns a block of at least `bytes` bytes that no write reads any more; null if kMostBytes does not allow one.
  Block* take(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t total_ = 0;
};

}  // namespace opencl
