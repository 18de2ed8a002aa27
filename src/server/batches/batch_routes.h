// The routes of /v1/batches. A client makes a batch from an uploaded file, lists its batches, and watches or cancels
// a batch. A client reaches only the batches of its own API key.
//
// Threads: used on the I/O thread only.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "tessera/server/batches/batch_store.h"
#include "tessera/server/batches/file_store.h"
#include "tessera/server/batches/route_work.h"
#include "tessera/server/http/router.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {

class BatchRoutes {
 public:
  // The stores and the reader outlive the object. If the stores are null, POST /v1/batches with a wrong body gets an
  // error about the body, and every other request gets no_file_folder(). After a batch was added, or its cancellation
  // was requested, `changed` is called. This may happen on any thread.
  BatchRoutes(FileStore* files, BatchStore* batches, RequestReader& reader, RouteWork work,
              std::function<void()> changed)
      : files_(files), batches_(batches), reader_(reader), work_(work), changed_(std::move(changed)) {}

  // Adds the routes. This object must outlive the use of the router.
  void add_to(Router& router);

 private:
  void make(Call call) const;
  void list(const Call& call) const;
  void get(const Call& call) const;
  // Answers POST …/batches/ID/cancel.
  void cancel(const Call& call) const;

  FileStore* files_;
  BatchStore* batches_;
  RequestReader& reader_;
  RouteWork work_;
  std::function<void()> changed_;
};

}  // namespace tessera
