// Loads the shared library of a plugin.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/plugin/host.h"
#include "tessera_plugin.h"

namespace tessera::plugin {

// A loaded library that has the two symbols of tessera_plugin.h for this version of the interface. It stays loaded as
// long as the object exists.
class Library {
 public:
  // Opens the library at the path `file`. Does not use the library search path. Returns kNotFound if the file does not
  // exist. Returns kInvalidArgument if the file is not a plugin or has another version of the interface.
  static Result<std::shared_ptr<Library>> open(const std::string& file);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Lets the plugin register its additions with `registry`. Returns the error of a call that was refused, the plugin's
  // own error, or an error for an exception that the plugin threw.
  Status add_to(Registry& registry);

  const char* name() const { return info_.name; }
  const char* version() const { return info_.version; }

 private:
  Library() = default;
  void* handle_ = nullptr;
  tessera_plugin_info info_{};
  int32_t (*register_)(const tessera_plugin_host*, tessera_plugin_error*) = nullptr;
  std::unique_ptr<Host> host_;  // contains the table that the plugin may keep
  Operators operators_;         // destroyed first, because an operator's functions are in the library
};

}  // namespace tessera::plugin
