#include "staging.h"

#include <bit>
#include <cstring>

namespace opencl {

Staging::Block* Staging::take(std::size_t bytes) {
  for (Block& block : blocks_) {
    if (block.bytes < bytes) continue;
    cl_int status = CL_COMPLETE;
    if (block.written.get() != nullptr)
      clGetEventInfo(block.written.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    if (status <= CL_COMPLETE) return &block;  // a negative status is a failed write, which has ended too
  }
  const std::size_t size = std::bit_ceil(bytes);
  if (total_ + size > kMostBytes) return nullptr;
  total_ += size;
  return &blocks_.emplace_back(Block{std::make_unique<std::byte[]>(size), size, {}});
}

std::int32_t Staging::write(cl_command_queue queue, cl_mem buffer, std::size_t offset, const void* data,
                            std::size_t bytes, tessera_plugin_error* error) {
  Block* block = take(bytes);
  if (block == nullptr)
    return check(error, clEnqueueWriteBuffer(queue, buffer, CL_TRUE, offset, bytes, data, 0, nullptr, nullptr),
                 "clEnqueueWriteBuffer");
  std::memcpy(block->data.get(), data, bytes);
  cl_event written = nullptr;
  OPENCL_TRY(check(
      error, clEnqueueWriteBuffer(queue, buffer, CL_FALSE, offset, bytes, block->data.get(), 0, nullptr, &written),
      "clEnqueueWriteBuffer"));
  block->written = ClEvent(written);
  return TESSERA_PLUGIN_OK;
}

}  // namespace opencl
