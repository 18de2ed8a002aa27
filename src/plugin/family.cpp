#include "tessera/plugin/family.h"

#include <fmt/format.h>

#include "tessera/base/log.h"
#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/family_graph.h"
#include "tessera/plugin/graph_text.h"

namespace tessera::plugin {
namespace {

Result<Json> rewrite(const tessera_plugin_family& table, const Json& config) {
  const std::string text = config.dump();
  TextSink out;
  TRY(call([&](tessera_plugin_error* error) {
        return table.config(table.self, text.c_str(), out.get(), error);
      }).with_context(fmt::format("family {}", table.architecture)));
  const std::string written = out.take();
  if (written.empty()) return config;
  Json rewritten = TRY(Json::parse(written, fmt::format("what family {} made of it", table.architecture)));
  if (!rewritten.is_object())
    return invalid_argument(fmt::format("family {} made no object of it: {}", table.architecture, rewritten.dump()));
  return rewritten;
}

std::string name_of(const tessera_plugin_family& table, const std::string& tensor) {
  TextSink out;
  const Status named = call([&](tessera_plugin_error* /*error*/) {
    table.tensor(table.self, tensor.c_str(), out.get());
    return TESSERA_PLUGIN_OK;
  });
  if (!named.ok()) {
    log_warn("load", "family {}: tensor {} keeps its name: {}", table.architecture, tensor, named.message());
    return tensor;
  }
  std::string name = out.take();
  return name.empty() ? tensor : name;
}

// Sets no attention windows, because the family's graph decides which layers attend to which tokens. `layer_types` and
// similar fields of the config are not read.
Status leave_layers_to_graph(const Fields& /*fields*/, ModelConfig& config) {
  config.sliding_windows.assign(static_cast<std::size_t>(config.num_hidden_layers), 0);
  return ok_status();
}

// Returns the settings from which the plugin's family starts. A family with a base starts from the base's settings. A
// family with a graph starts from settings that all families have in common. The table must have exactly one of the
// two. Returns an error if it has both or none, or if the base is unknown.
Result<ModelFamily> base_of(const tessera_plugin_family& table, const FamilyRegistry& known) {
  if ((table.base == nullptr) == (table.graph == nullptr))
    return invalid_argument(fmt::format("family {} has {}; accepted is one of them", table.architecture,
                                        table.base == nullptr ? "neither base nor graph" : "both base and graph"));
  if (table.base == nullptr)
    return ModelFamily{.architecture = {}, .partial_rotary = true, .read_config = leave_layers_to_graph};
  TRY(check_word(table.base, "family's base"));
  const ModelFamily* base = known.find(table.base);
  if (base != nullptr) return *base;
  return invalid_argument(
      fmt::format("family {}: its base {} is unknown; there are {}", table.architecture, table.base, known.names()));
}

}  // namespace

Result<ModelFamily> make_plugin_family(const tessera_plugin_family* given, const FamilyRegistry& known) {
  const tessera_plugin_family table = TRY(copy_table(given, "family"));
  TRY(check_word(table.architecture, "family"));
  const ModelFamily base = TRY(base_of(table, known));
  ModelFamily family = base;
  family.architecture = table.architecture;
  if (table.graph != nullptr)
    family.make_body = [table](const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops) {
      return make_family_body(table, config, options, ops);
    };
  if (table.config != nullptr)
    family.rewrite_config = [table, first = base.rewrite_config](const Json& config) -> Result<Json> {
      const Json rewritten = TRY(rewrite(table, config));
      return first ? first(rewritten) : rewritten;
    };
  if (table.body != nullptr)
    family.change_body = [table, first = base.change_body](ir::Graph body,
                                                           const ir::OpTable& ops) -> Result<ir::Graph> {
      if (first) body = TRY(first(std::move(body), ops));
      const auto run = [&](const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error) {
        return table.body(table.self, graph, out, error);
      };
      std::optional<ir::Graph> changed = TRY(rewrite_graph(body, ops, run));
      return changed ? *std::move(changed) : std::move(body);
    };
  if (table.tensor != nullptr)
    family.tensor_name = [table, first = base.tensor_name](const std::string& tensor) {
      const std::string name = name_of(table, first ? first(tensor) : tensor);
      return name;
    };
  return family;
}

}  // namespace tessera::plugin
