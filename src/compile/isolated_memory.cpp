#include "tessera/compile/isolated_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {

Result<DeviceAddress> IsolatedMemory::allocate(std::string name, std::size_t bytes, Stream& stream) {
  // The second guard zone begins directly after the value's last byte, without padding, so that even an overrun of one
  // element is found.
  std::unique_ptr<Allocation> memory = TRY(device_.allocate(bytes + 2 * kGuardBytes, name));
  TRY(stream.fill(memory->data(), kPoison, memory->size()));
  const DeviceAddress address = memory->data() + kGuardBytes;
  total_bytes_ += static_cast<std::int64_t>(memory->size());
  values_.push_back({std::move(name), std::move(memory), bytes});
  return address;
}

Status IsolatedMemory::poison(Stream& stream) {
  for (const Value& v : values_) TRY(stream.fill(v.memory->data(), kPoison, v.memory->size()));
  return ok_status();
}

Status IsolatedMemory::check_guards(Stream& stream) const {
  std::vector<std::uint8_t> guard(kGuardBytes);
  for (const Value& v : values_) {
    for (const std::size_t offset : {std::size_t{0}, kGuardBytes + v.bytes}) {
      TRY(stream.download(guard.data(), v.memory->data() + offset, kGuardBytes));
      TRY(stream.synchronize());
      const auto hit = std::find_if(guard.begin(), guard.end(), [](std::uint8_t b) { return b != kPoison; });
      if (hit != guard.end()) {
        const auto distance = offset == 0 ? guard.end() - hit : hit - guard.begin() + 1;
        return internal_error(fmt::format("a kernel wrote outside %{} ({} bytes), {} bytes {} it", v.name, v.bytes,
                                          distance, offset == 0 ? "before" : "past"));
      }
    }
  }
  return ok_status();
}

}  // namespace tessera
