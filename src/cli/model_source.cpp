#include "tessera/cli/model_source.h"

#include <cstdlib>
#include <type_traits>

#include "tessera/cli/session.h"
#include "tessera/model/hub_download.h"

namespace tessera::cli {

HubSettings hub_settings() {
  return hub_settings_from([](const char* name) -> const char* { return std::getenv(name); });
}

Status find_model(Command& command, const ModelSource& source) {
  const auto find = [&](auto& options) -> Status {
    if constexpr (requires { options.engine; }) {
      EngineOptions& engine = options.engine;
      if (engine.model_path.empty()) return ok_status();  // a server elsewhere has the model
      const bool needs_weights =
          !std::is_same_v<decltype(options), ExplainOptions&> && engine.load_format != LoadFormat::kDummy;
      engine.model_path = TRY(resolve_model({.path_or_id = engine.model_path,
                                             .revision = source.revision,
                                             .content = needs_weights ? ModelContent::kWeights : ModelContent::kConfig,
                                             .download = source.download,
                                             .show_progress = progress_wanted()},
                                            hub_settings()));
    }
    return ok_status();
  };
  return std::visit(find, command);
}

}  // namespace tessera::cli
