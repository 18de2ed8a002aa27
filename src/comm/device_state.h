// What a rank's device shares for exchanges with other devices: mailboxes, links, a communicator of NCCL. Such an
// object is made when the first bound operator needs it. The rank's bound operators own it, so that it is destroyed
// before the device; the communicator only finds it again.
#pragma once

#include <cstdint>
#include <memory>

namespace tessera {

class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;
  // Returns the device memory that the exchange has taken on this rank's device.
  virtual std::int64_t bytes() const = 0;
};

// Belongs to the rank's thread.
struct DeviceState {
  std::weak_ptr<DeviceExchange> ranks{};  // with the other ranks of the stage
  std::weak_ptr<DeviceExchange> to_next{};
  std::weak_ptr<DeviceExchange> from_previous{};

  std::weak_ptr<DeviceExchange>& link(bool to_next_stage) { return to_next_stage ? to_next : from_previous; }
  // Returns the device memory that this rank's exchanges have taken.
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const std::weak_ptr<DeviceExchange>* each : {&ranks, &to_next, &from_previous})
      if (const std::shared_ptr<DeviceExchange> exchange = each->lock()) sum += exchange->bytes();
    return sum;
  }
};

}  // namespace tessera
