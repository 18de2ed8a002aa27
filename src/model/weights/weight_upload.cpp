#include "tessera/model/weights/weight_upload.h"

namespace tessera {

Result<WeightUpload> WeightUpload::create(Device& device) {
  WeightUpload upload;
  upload.direct_ = device.properties().on_host;
  if (upload.direct_) return upload;
  upload.stream_ = TRY(device.create_stream("weights"));
  for (Buffer& buffer : upload.buffers_) {
    buffer.memory = TRY(device.allocate_host(kBufferBytes, "weight staging"));
    buffer.copied = TRY(device.create_event());
  }
  return upload;
}

Status WeightUpload::write(DeviceAddress to, std::size_t bytes,
                           const std::function<Status(std::span<std::byte>)>& fill) {
  if (direct_) return fill(std::span(to.raw(), bytes));
  Buffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  TRY(buffer.copied->synchronize());
  TRY(fill(std::span(buffer.memory->data(), bytes)));
  TRY(stream_->upload(to, buffer.memory->data(), bytes));
  return stream_->record(*buffer.copied);
}

Status WeightUpload::finish() { return direct_ ? ok_status() : stream_->synchronize(); }

}  // namespace tessera
