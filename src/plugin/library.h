// A plugin's shared library, loaded.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/plugin/host.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A library with the two symbols of tessera_plugin.h, of this version of the interface. It stays loaded as long as
// this.
class Library {
 public:
  // `file` as it stands, with a slash: the library search path is not asked. kNotFound where there is no such file,
  // kInvalidArgument for what is no plugin, or one of another version.
  static Result<std::shared_ptr<Library>> open(const std::string& file);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Lets it add to `registry`. The error of a refused call, of the plugin itself, or what it threw.
  Status add_to(Registry& registry);

  const char* name() const { return info_.name; }
  const char* version() const { return info_.version; }

 private:
  Library() = default;
  void* handle_ = nullptr;
  tessera_plugin_info info_{};
  int32_t (*register_)(const tessera_plugin_host*, tessera_plugin_error*) = nullptr;
  std::unique_ptr<Host> host_;                                         // its table, which the plugin may keep
  std::unique_ptr<Contents> contents_ = std::make_unique<Contents>();  // goes before the library does
};

}  // namespace tessera::plugin
