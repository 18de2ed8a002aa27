#include "tessera/device/device.h"

#include <fmt/format.h>

namespace tessera {

std::string address_text(DeviceAddress address) {
  return fmt::format("{}+{}", fmt::ptr(address.handle), address.offset);
}

}  // namespace tessera
