#include "tessera/plugin/load.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "tessera/plugin/library.h"
#include "tessera/plugin/probe.h"

namespace tessera::plugin {
namespace {

Status check_new(const Registry& registry, const Library& library) {
  for (const LoadedPlugin& known : registry.plugins)
    if (known.name == library.name())
      return invalid_argument(fmt::format("a plugin named {} is loaded already, from {}", known.name, known.file));
  return ok_status();
}

Result<std::shared_ptr<Library>> add(const std::string& file, Registry& registry) {
  std::shared_ptr<Library> library = TRY(Library::open(file));
  TRY(check_new(registry, *library));
  TRY(library->add_to(registry));
  return library;
}

Result<Hash128> content_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in) return data_loss("it cannot be read");
  Hasher hasher;
  hasher.add(bytes);
  return hasher.finish();
}

}  // namespace

Status add_plugin(const std::string& file, Registry& registry, std::chrono::milliseconds limit) {
  const std::string context = fmt::format("plugin {}", file);
  TRY(run_in_child([&] { return add(file, registry).status(); }, limit).with_context(context));
  const Hash128 content = TRY(content_of(file).with_context(context));
  const std::shared_ptr<Library> library = TRY(add(file, registry).with_context(context));
  registry.plugins.push_back(
      {.name = library->name(), .version = library->version(), .file = file, .content = content, .library = library});
  return ok_status();
}

Result<std::shared_ptr<const Registry>> load_plugins(const std::vector<std::string>& files) {
  auto registry = std::make_shared<Registry>(built_in_registry());
  for (const std::string& file : files) TRY(add_plugin(file, *registry));
  return std::shared_ptr<const Registry>(std::move(registry));
}

}  // namespace tessera::plugin
