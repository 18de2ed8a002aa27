// Test helper for the scheduler: keeps the page tables of every cache group on a device, and updates them batch by
// batch as attention plans do. Each page table has a number, which changes if existing entries change. If the number
// has not changed, the helper checks that the table has changed only by new entries at its end.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/engine/cache/cache_manager.h"
#include "tessera/ops/contract/device_page_tables.h"

namespace tessera::test {

class DeviceTables {
 public:
  DeviceTables(const CacheOptions& cache, std::int64_t max_requests) {
    for (const CacheGroupOptions& group : cache.groups) {
      limits_.push_back({.max_requests = max_requests,
                         .max_pages_per_request = 64,
                         .page_size = group.is_state() ? INT32_MAX : cache.page_size,
                         .check_page_tables = true});
      tables_.push_back(DevicePageTables::create(*device_, limits_.back(), group.num_pages).value());
    }
  }

  // Returns "" if the device has the batch's tables, and an error text otherwise.
  std::string check(const ForwardBatch& batch) {
    for (std::size_t g = 0; g < tables_.size(); ++g) {
      const std::vector<PageTable>& wanted = batch.groups[g].page_tables;
      if (const Status status = tables_[g].update(wanted, batch.kv_lens, *stream_); !status.ok())
        return status.message();
      for (std::size_t b = 0; b < wanted.size(); ++b) {
        const std::int32_t* row = tables_[g].data() + b * static_cast<std::size_t>(limits_[g].max_pages_per_request);
        const auto same = [](PageId page, std::int32_t entry) { return page.value() == entry; };
        if (!std::equal(wanted[b].pages.begin(), wanted[b].pages.end(), row, same))
          return "the device has another page table of request " + std::to_string(b);
      }
    }
    return "";
  }

 private:
  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("tables").value();
  std::vector<PlanLimits> limits_;
  std::vector<DevicePageTables> tables_;
};

}  // namespace tessera::test
