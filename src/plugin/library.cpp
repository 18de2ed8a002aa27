#include "tessera/plugin/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "tessera/plugin/c_call.h"
#include "tessera/plugin/c_table.h"

namespace tessera::plugin {

Result<std::shared_ptr<Library>> Library::open(const std::string& file) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(file, error);
  if (error || !std::filesystem::is_regular_file(path, error))
    return not_found("there is no such file; accepted is the path of a shared library");
  std::shared_ptr<Library> library(new Library);
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) return invalid_argument(fmt::format("it cannot be loaded: {}", dlerror()));

  const auto* info = static_cast<const tessera_plugin_info*>(dlsym(library->handle_, "tessera_plugin"));
  if (info == nullptr)
    return invalid_argument(
        "it has no symbol tessera_plugin; a plugin has TESSERA_PLUGIN(name, version) in one source");
  constexpr std::size_t kLeast = offsetof(tessera_plugin_info, abi) + sizeof(info->abi);
  if (info->size < kLeast || info->abi != TESSERA_PLUGIN_ABI)
    return invalid_argument(
        fmt::format("it was built for version {} of tessera_plugin.h; this engine has version {}: "
                    "build it against this engine's header",
                    info->size < kLeast ? 0 : info->abi, TESSERA_PLUGIN_ABI));
  library->info_ = TRY(copy_table(info, "tessera_plugin"));
  TRY(check_word(library->info_.name, "plugin"));
  TRY(check_set(library->info_.version, "tessera_plugin", "version"));
  library->register_ =
      reinterpret_cast<decltype(library->register_)>(dlsym(library->handle_, "tessera_plugin_register"));
  if (library->register_ == nullptr) return invalid_argument("it has no function tessera_plugin_register");
  return library;
}

Library::~Library() {
  operators_.clear();
  if (handle_ != nullptr) dlclose(handle_);
}

Status Library::add_to(Registry& registry) {
  host_ = std::make_unique<Host>(registry, operators_);
  Status registered = call([&](tessera_plugin_error* error) { return register_(host_->table(), error); });
  host_->close();
  TRY(host_->status());  // checked first, because the plugin's own error only follows from a refused call
  return registered;
}

}  // namespace tessera::plugin
