// The registry holds the parts that a program is built from: operators, devices with their kernels and capture methods,
// model families, compilers, passes, and chat formats. main makes one registry, adds the program's own parts, and
// passes the registry to the layers below. No layer keeps its own list of parts.
//
//   Registry registry = built_in_registry();
//   TRY(registry.ops.add(kMyOp));
//   TRY(registry.devices.add_kernel("cpu", kMyOpCpu));
//   TRY(registry.families.add(my_family()));
//   TRY(registry.piecewise_backends.add("my_device", my_backend));
//   EngineOptions options{.registry = std::make_shared<const Registry>(std::move(registry))};
//
// One thread adds to the registry before anyone reads it. Afterwards the registry is immutable and thread-safe. Objects
// that were made with a registry share its ownership or must not outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/compile/compiler_registry.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/family.h"
#include "tessera/ops/device_registry.h"
#include "tessera/piecewise/backend.h"
#include "tessera/text/chat/chat_format.h"

namespace tessera {

// A library that added parts to the registry. It stays loaded as long as the registry exists.
struct LoadedPlugin {
  std::string name;
  std::string version;
  std::string file;
  Hash128 content;  // hash of the file
  std::shared_ptr<const void> library;
};

struct Registry {
  // The loaded plugins, in the order of loading. This member is the first and thus destroyed last, so the libraries
  // outlive the parts that they added.
  std::vector<LoadedPlugin> plugins{};
  ir::OpTable ops;
  DeviceRegistry devices;
  FamilyRegistry families;
  CompilerRegistry compilers;
  std::vector<Pass> passes{};  // in the order in which they run
  // Capture methods for devices that cannot record streams. Other devices need no entry here.
  PiecewiseBackends piecewise_backends{};
  ChatFormats chat_formats{};  // chat formats besides the server's own
};

Registry built_in_registry();
// Returns one shared, immutable registry of the built-in parts.
std::shared_ptr<const Registry> shared_built_ins();

}  // namespace tessera
