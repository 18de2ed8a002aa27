#include "tessera/capi/open_options.h"

#include <cstdlib>
#include <utility>

#include "tessera/options/cache_dir.h"
#include "tessera/options/engine_flags.h"
#include "tessera/options/protocol_flags.h"
#include "tessera/server/served_model.h"

namespace tessera::capi {
namespace {

const char* environment(const char* name) { return std::getenv(name); }

}  // namespace

Result<OpenOptions> read_open_options(std::shared_ptr<const Registry> registry, const std::string& text,
                                      std::function<Status(const std::string& file)> load_plugin) {
  OpenOptions options;
  FlagParser parser("An engine within a program.", TESSERA_VERSION);
  CommonFlags common{.registry = std::move(registry), .load_plugin = std::move(load_plugin)};
  ProtocolFlags protocol;
  CommandFlags& flags = parser.add_command("tessera_open", "Open a model");
  flags.listed_in("docs/embedding-api.md");
  add_protocol_flags(flags, options.server, options.engine, protocol);
  add_engine_flags(flags, options.engine, common);

  TRY(flags.take_config(text, "options"));
  if (common.print_config)
    return invalid_argument("--print-config is for the command line; tessera_explain says what options come to");
  TRY(finish_engine_flags(options.engine, common));
  TRY(finish_protocol_flags(protocol, options.engine, options.server));
  TRY(ServedModel::check(options.server, options.engine.registry->chat_formats));
  options.model = common.model;
  options.log_levels = common.log_levels;
  options.warnings = warnings_about(options.engine, common);
  options.values = flags.flag_values();
  return options;
}

Status find_folders(OpenOptions& options, ModelContent content) {
  EngineOptions& engine = options.engine;
  if (engine.load_format == LoadFormat::kDummy) content = ModelContent::kConfig;
  TRY(find_model_files(engine, options.model, content, hub_settings_from(environment), /*show_progress=*/false));
  engine.cache_dir = cache_dir_from(environment);
  return ok_status();
}

}  // namespace tessera::capi
