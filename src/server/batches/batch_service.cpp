#include "tessera/server/batches/batch_service.h"

#include <array>
#include <utility>
#include <vector>

#include "tessera/server/metrics/metric_families.h"

namespace tessera {

Result<std::unique_ptr<BatchService>> BatchService::create(const std::string& folder, std::int64_t bytes,
                                                           Server server) {
  std::unique_ptr<BatchService> service(new BatchService());
  if (!folder.empty()) {
    service->folder_.emplace(TRY(FileFolder::open(folder)));
    service->files_ = TRY(FileStore::open(service->folder_->files(), {.bytes = bytes}));
    service->batches_ = TRY(BatchStore::open(service->folder_->batches(), {}));
    TRY(service->files_->give_unnamed(server.owner_of_unnamed));
    TRY(service->batches_->give_unnamed(server.owner_of_unnamed));
    service->runner_ = std::make_unique<BatchRunner>(server.model, *service->files_, *service->batches_,
                                                     server.responses, std::move(server.hooks));
  }
  service->file_routes_.emplace(service->files_.get(), server.work);
  service->batch_routes_.emplace(service->files_.get(), service->batches_.get(), server.reader, server.work,
                                 [runner = service->runner_.get()] { runner->wake(); });
  return service;
}

std::string BatchService::metrics() const {
  if (runner_ == nullptr) return "";
  std::array<std::int64_t, kNumBatchStatuses> counts{};
  std::int64_t left = 0;
  for (const Batch& batch : batches_->running()) {
    ++counts[static_cast<std::size_t>(batch.status)];
    left += batch.total - batch.completed - batch.failed;
  }
  std::vector<MetricSample> batches;
  for (const BatchStatus status :
       {BatchStatus::kValidating, BatchStatus::kInProgress, BatchStatus::kFinalizing, BatchStatus::kCancelling}) {
    const auto count = static_cast<double>(counts[static_cast<std::size_t>(status)]);
    batches.push_back({{{"status", std::string(batch_status_name(status))}}, count});
  }
  MetricFamilies families;
  families.gauges("tessera:batches", "Batches that have not ended.", batches);
  families.gauge("tessera:batch_requests_left", "Requests of batches whose files were checked, without an answer.", {},
                 static_cast<double>(left));
  families.gauge("tessera:batch_requests_running", "Requests of batches that run or wait in the engines.", {},
                 static_cast<double>(runner_->requests()));
  families.gauge("tessera:file_storage_bytes", "Bytes of kept files.", {}, static_cast<double>(files_->used()));
  families.gauge("tessera:file_storage_limit_bytes", "The most bytes that kept files may have together.", {},
                 static_cast<double>(files_->limit()));
  return families.text();
}

void BatchService::add_to(Router& router) {
  file_routes_->add_to(router);
  batch_routes_->add_to(router);
}

}  // namespace tessera
