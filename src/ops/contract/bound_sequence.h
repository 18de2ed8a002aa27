// Combines several bound operators into one BoundOp, which enqueues them in order. A kernel's bind() returns a
// BoundSequence if the kernel leaves a part of its work to other kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/ops/contract/op.h"

namespace tessera {

class BoundSequence final : public BoundOp {
 public:
  explicit BoundSequence(std::vector<std::unique_ptr<BoundOp>> parts) : parts_(std::move(parts)) {}
  Status enqueue(Stream& stream) const override {
    for (const std::unique_ptr<BoundOp>& part : parts_) TRY(part->enqueue(stream));
    return ok_status();
  }

 private:
  std::uint64_t choice() const override {
    std::uint64_t mixed = 0;
    for (const std::unique_ptr<BoundOp>& part : parts_) {
      const KernelVariant variant = part->variant();
      mixed = (mixed ^ variant.type.hash_code()) * 0x9E3779B97F4A7C15u + variant.choice;
    }
    return mixed;
  }

  std::vector<std::unique_ptr<BoundOp>> parts_;
};

}  // namespace tessera
