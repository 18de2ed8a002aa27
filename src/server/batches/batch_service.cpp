#include "tessera/server/batches/batch_service.h"

#include <utility>

namespace tessera {

Result<std::unique_ptr<BatchService>> BatchService::create(const std::string& folder, std::int64_t bytes,
                                                           Server server) {
  std::unique_ptr<BatchService> service(new BatchService());
  if (!folder.empty()) {
    service->folder_.emplace(TRY(FileFolder::open(folder)));
    service->files_ = TRY(FileStore::open(service->folder_->files(), {.bytes = bytes}));
    service->batches_ = TRY(BatchStore::open(service->folder_->batches(), {}));
    service->runner_ = std::make_unique<BatchRunner>(server.model, *service->files_, *service->batches_,
                                                     server.responses, std::move(server.hooks));
  }
  service->file_routes_.emplace(service->files_.get(), server.work);
  service->batch_routes_.emplace(service->files_.get(), service->batches_.get(), server.reader, server.work,
                                 [runner = service->runner_.get()] { runner->wake(); });
  return service;
}

void BatchService::add_to(Router& router) {
  file_routes_->add_to(router);
  batch_routes_->add_to(router);
}

}  // namespace tessera
