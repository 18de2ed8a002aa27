// Holds the objects through which a rank's device exchanges data with other devices: mailboxes, links, and an NCCL
// communicator. The users of these objects are the rank's bound operators (operators whose kernels and addresses are
// fixed). Each object is made when a bound operator first needs it. The bound operators own the object, so it is
// destroyed with them, before the device. The Communicator only holds a weak reference.
#pragma once

#include <cstdint>
#include <memory>

namespace tessera {

class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;
  // Returns the number of bytes that the exchange takes in the memory of this rank's device.
  virtual std::int64_t bytes() const = 0;
};

// The device exchanges of one rank. Only the rank's thread uses them.
struct DeviceState {
  std::weak_ptr<DeviceExchange> ranks{};  // the exchange with the other ranks of the stage
  std::weak_ptr<DeviceExchange> to_next{};
  std::weak_ptr<DeviceExchange> from_previous{};

  std::weak_ptr<DeviceExchange>& link(bool to_next_stage) { return to_next_stage ? to_next : from_previous; }
  // Returns the device memory of this rank's exchanges, in bytes.
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const std::weak_ptr<DeviceExchange>* each : {&ranks, &to_next, &from_previous})
      if (const std::shared_ptr<DeviceExchange> exchange = each->lock()) sum += exchange->bytes();
    return sum;
  }
};

}  // namespace tessera
