#include "tessera/server/server_files.h"

#include "tessera/server/report/access_log.h"

namespace tessera {

Status check_server_files(const ServerOptions& options) {
  if (!options.access_log.empty())
    TRY(AccessLog::open(options.access_log, /*model=*/"").status().with_context("--access-log"));
  return ok_status();
}

}  // namespace tessera
