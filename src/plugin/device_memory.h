// Implements the allocations and arenas of a plugin's device.
#pragma once

#include <memory>
#include <string>

#include "tessera/device/device.h"
#include "tessera/plugin/device.h"

namespace tessera::plugin {

class PluginAllocation final : public Allocation {
 public:
  static Result<std::unique_ptr<PluginAllocation>> create(PluginDevice& device, std::size_t bytes, std::string name);
  ~PluginAllocation() override;
  PluginAllocation(const PluginAllocation&) = delete;
  PluginAllocation& operator=(const PluginAllocation&) = delete;

 private:
  PluginAllocation(PluginDevice& device, std::string name) : device_(device), name_(std::move(name)) {}
  PluginDevice& device_;
  std::string name_;
};

class PluginHostAllocation final : public HostAllocation {
 public:
  static Result<std::unique_ptr<PluginHostAllocation>> create(PluginDevice& device, std::size_t bytes,
                                                              std::string name);
  ~PluginHostAllocation() override;
  PluginHostAllocation(const PluginHostAllocation&) = delete;
  PluginHostAllocation& operator=(const PluginHostAllocation&) = delete;

 private:
  PluginHostAllocation(PluginDevice& device, std::string name) : device_(device), name_(std::move(name)) {}
  PluginDevice& device_;
  std::string name_;
};

class PluginArena final : public Arena {
 public:
  static Result<std::unique_ptr<PluginArena>> create(PluginDevice& device, const ArenaOptions& options);
  ~PluginArena() override;
  PluginArena(const PluginArena&) = delete;
  PluginArena& operator=(const PluginArena&) = delete;

  Status grow(std::size_t bytes) override;

 private:
  PluginArena(PluginDevice& device, std::string name) : device_(device), name_(std::move(name)) {}
  PluginDevice& device_;
  std::string name_;
  void* arena_ = nullptr;
  std::size_t claimed_ = 0;  // bytes reserved with PluginDevice::claim()
  bool made_ = false;
};

}  // namespace tessera::plugin
