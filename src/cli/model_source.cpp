#include "tessera/cli/model_source.h"

#include <cstdlib>
#include <type_traits>

#include "tessera/cli/session/session.h"
#include "tessera/options/cache_dir.h"

namespace tessera::cli {

HubSettings hub_settings() {
  return hub_settings_from([](const char* name) -> const char* { return std::getenv(name); });
}

Status find_model(Command& command, const ModelSource& source) {
  const auto find = [&](auto& options) -> Status {
    if constexpr (requires { options.engine; }) {
      EngineOptions& engine = options.engine;
      // Without a model's path, the command uses another process's server, which has the model.
      if (engine.model_path.empty()) return ok_status();
      const bool needs_weights =
          !std::is_same_v<decltype(options), ExplainOptions&> && engine.load_format != LoadFormat::kDummy;
      const ModelContent content = needs_weights ? ModelContent::kWeights : ModelContent::kConfig;
      return find_model_files(engine, source, content, hub_settings(), progress_wanted());
    }
    return ok_status();
  };
  return std::visit(find, command);
}

std::string cache_dir() {
  return cache_dir_from([](const char* name) -> const char* { return std::getenv(name); });
}

void use_cache_dir(Command& command) {
  std::visit(
      [](auto& options) {
        if constexpr (requires { options.engine; }) options.engine.cache_dir = cache_dir();
      },
      command);
}

}  // namespace tessera::cli
