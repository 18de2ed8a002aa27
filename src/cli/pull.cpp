#include "tessera/cli/commands.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/model/hub/hub_download.h"

namespace tessera::cli {

Status run_pull(const PullCommandOptions& options) {
  HubSettings settings = hub_settings();
  if (!options.endpoint.empty()) settings.endpoint = options.endpoint;
  if (!options.cache_dir.empty()) settings.cache = options.cache_dir;
  const std::string folder = TRY(pull_model(settings, options.model, {.show_progress = progress_wanted()}));
  return write_output(folder + "\n");
}

}  // namespace tessera::cli
