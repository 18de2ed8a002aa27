#include "tessera/device/device.h"

#include <fmt/format.h>

namespace tessera {

std::string address_text(DeviceAddress address) {
  return fmt::format("{}+{}", fmt::ptr(address.handle), address.offset);
}

Status Stream::copy_rows(DeviceAddress to, DeviceAddress from, std::size_t bytes, std::int64_t pitch,
                         std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row) TRY(copy(to + row * pitch, from + row * pitch, bytes));
  return ok_status();
}

}  // namespace tessera
