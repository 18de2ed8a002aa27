// Implements the memory of the CPU device: single allocations and arenas. Both count towards the device's memory limit.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera {

class CpuAllocation final : public Allocation {
 public:
  // Allocates `bytes`. Precondition: the caller has claimed the bytes from the device. If create() fails, the caller
  // gives them back.
  static Result<std::unique_ptr<CpuAllocation>> create(CpuDevice& device, std::size_t bytes, std::string_view name);
  ~CpuAllocation() override;
  CpuAllocation(const CpuAllocation&) = delete;
  CpuAllocation& operator=(const CpuAllocation&) = delete;

 private:
  CpuAllocation(CpuDevice& device, std::string_view name) : device_(device), name_(name) {}
  bool mapped() const;

  CpuDevice& device_;
  std::string name_;
};

// Wraps a CpuAllocation as host memory, because the host's memory is the device's memory.
class CpuHostAllocation final : public HostAllocation {
 public:
  explicit CpuHostAllocation(std::unique_ptr<Allocation> memory) : memory_(std::move(memory)) {
    data_ = memory_->data().raw();
    size_ = memory_->size();
  }

 private:
  std::unique_ptr<Allocation> memory_;
};

// An arena reserves its addresses without access rights when it is created, and grow() makes pages accessible. If a
// limit counts mapped addresses as memory (`ulimit -v`), the arena instead makes all pages accessible when it is
// created.
class CpuArena final : public Arena {
 public:
  static Result<std::unique_ptr<CpuArena>> create(CpuDevice& device, ArenaOptions options);
  ~CpuArena() override;
  CpuArena(const CpuArena&) = delete;
  CpuArena& operator=(const CpuArena&) = delete;

  Status grow(std::size_t bytes) override;

 private:
  CpuArena(CpuDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

  CpuDevice& device_;
  std::string name_;
  void* mapping_ = nullptr;  // start of the mapping, before base_ is aligned
  std::size_t mapping_bytes_ = 0;
};

}  // namespace tessera
