// What a program is made of: operators, devices with their kernels and ways to capture, model families, compilers,
// passes, and forms of chats.
// main makes one registry, adds what the program brings of its own, and passes it down; no layer keeps a list of its
// own.
//
//   Registry registry = built_in_registry();
//   TRY(registry.ops.add(kMyOp));
//   TRY(registry.devices.add_kernel("cpu", kMyOpCpu));
//   TRY(registry.families.add(my_family()));
//   TRY(registry.piecewise_backends.add("my_device", my_backend));
//   EngineOptions options{.registry = std::make_shared<const Registry>(std::move(registry))};
//
// Adding is for one thread, before the registry is read; then it is immutable and thread-safe. Whatever is made with a
// registry shares it or is outlived by it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/compile/compiler_registry.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/family.h"
#include "tessera/ops/contract/device_registry.h"
#include "tessera/piecewise/backend.h"
#include "tessera/text/chat_format.h"

namespace tessera {

// A library that added to the registry, and stays loaded as long as that.
struct LoadedPlugin {
  std::string name;
  std::string version;
  std::string file;
  Hash128 content;  // of the file
  std::shared_ptr<const void> library;
};

struct Registry {
  std::vector<LoadedPlugin> plugins{};  // in the order of loading; first, so that they outlive what they added
  ir::OpTable ops;
  DeviceRegistry devices;
  FamilyRegistry families;
  CompilerRegistry compilers;
  std::vector<Pass> passes{};              // in the order in which they run
  PiecewiseBackends piecewise_backends{};  // beside the recording of streams, which needs none
  ChatFormats chat_formats{};              // beside those that the server has
};

Registry built_in_registry();
// The same, to be shared as it is.
std::shared_ptr<const Registry> shared_built_ins();

}  // namespace tessera
