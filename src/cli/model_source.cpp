#include "tessera/cli/model_source.h"

#include <fmt/format.h>

#include <cstdlib>
#include <type_traits>

#include "tessera/cli/session.h"
#include "tessera/model/hub_download.h"

namespace tessera::cli {

HubSettings hub_settings() {
  return hub_settings_from([](const char* name) -> const char* { return std::getenv(name); });
}

namespace {

// How to get a model that is not in the cache.
Status with_advice(const Status& status, const std::string& model, const std::string& revision) {
  const std::string flag = revision.empty() ? "" : " --revision " + revision;
  return not_found(fmt::format("{}; `tessera pull {}{}` or --download fetches it", status.message(), model, flag));
}

}  // namespace

Status find_model(Command& command, const ModelSource& source) {
  const auto find = [&](auto& options) -> Status {
    if constexpr (requires { options.engine; }) {
      EngineOptions& engine = options.engine;
      if (engine.model_path.empty()) return ok_status();  // a server elsewhere has the model
      const bool needs_weights =
          !std::is_same_v<decltype(options), ExplainOptions&> && engine.load_format != LoadFormat::kDummy;
      Result<std::string> folder =
          resolve_model({.path_or_id = engine.model_path,
                         .revision = source.revision,
                         .content = needs_weights ? ModelContent::kWeights : ModelContent::kConfig,
                         .download = source.download,
                         .show_progress = progress_wanted()},
                        hub_settings());
      if (!folder.ok() && folder.status().code() == StatusCode::kNotFound && !source.download)
        return with_advice(folder.status(), engine.model_path, source.revision);
      engine.model_path = TRY(std::move(folder));
    }
    return ok_status();
  };
  return std::visit(find, command);
}

}  // namespace tessera::cli
