#include "tessera/server/server_files.h"

#include "tessera/server/batches/file_folder.h"
#include "tessera/server/report/access_log.h"

namespace tessera {

Status check_server_files(const ServerOptions& options) {
  if (!options.access_log.empty())
    TRY(AccessLog::open(options.access_log, /*model=*/"").status().with_context("--access-log"));
  if (!options.file_folder.empty())
    TRY(FileFolder::open(options.file_folder).status().with_context("--file-storage-path"));
  return ok_status();
}

}  // namespace tessera
