#include "tessera/ops/contract/step_buffer.h"

#include <algorithm>
#include <cassert>

#include "tessera/device/alignment.h"

namespace tessera {

std::size_t StepBuffer::reserve(std::size_t bytes) {
  assert(memory_ == nullptr);
  const std::size_t offset = size_;
  size_ += static_cast<std::size_t>(align_up(static_cast<std::int64_t>(bytes)));
  return offset;
}

Status StepBuffer::allocate(Device& device, Stream& stream) {
  memory_ = TRY(device.allocate(size_, "inputs of a step"));
  mirror_.assign(size_, std::byte{0});
  return size_ == 0 ? ok_status() : stream.fill(memory_->data(), 0, size_);
}

void StepBuffer::written(std::size_t offset, std::size_t bytes) {
  assert(offset + bytes <= size_);
  if (bytes > 0) written_.push_back({offset, offset + bytes});
}

Status StepBuffer::upload(Stream& stream) {
  std::ranges::sort(written_, {}, &Range::begin);
  for (std::size_t i = 0; i < written_.size();) {
    Range copy = written_[i++];
    for (; i < written_.size() && written_[i].begin <= copy.end + kMaxGap; ++i)
      copy.end = std::max(copy.end, written_[i].end);
    TRY(stream.upload(memory_->data() + copy.begin, mirror_.data() + copy.begin, copy.end - copy.begin));
  }
  written_.clear();
  return ok_status();
}

}  // namespace tessera
