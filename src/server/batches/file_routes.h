// The routes of /v1/files. A client uploads a file as a form, lists its files, reads them and deletes them. A client
// reaches only the files of its own API key.
//
// Threads: used on the I/O thread only.
#pragma once

#include <memory>
#include <string>

#include "tessera/server/batches/file_store.h"
#include "tessera/server/batches/route_work.h"
#include "tessera/server/http/router.h"

namespace tessera {

class FileRoutes {
 public:
  // `store` outlives the object. If it is null, every route answers no_file_folder().
  FileRoutes(FileStore* store, RouteWork work) : store_(store), work_(work) {}

  // Adds the routes. This object must outlive the use of the router.
  void add_to(Router& router);

 private:
  void upload(Call call) const;
  void list(const Call& call) const;
  // Answers GET …/files/ID and …/files/ID/content.
  void get(const Call& call) const;
  void erase(const Call& call) const;
  void send_content(const Call& call, const std::string& id) const;

  FileStore* store_;
  RouteWork work_;
};

}  // namespace tessera
