// Loads NVRTC, CUDA's compiler as a library. It is loaded on first use, from the CUDA toolkit or from NVIDIA's Python
// wheel, so this project can be built without NVRTC.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

class Nvrtc {
 public:
  // Loads the library once for the process: from the loader's search path, from CUDA's usual folder, or from the
  // packages of a Python installation in /usr/local/lib or /usr/lib. It stays loaded. A kNotFound error lists the
  // places that were tried.
  static Result<const Nvrtc*> load();

  std::string version() const;  // for example "13.0"
  // Compiles `source` to machine code. `compute_capability` is 10 · major + minor. If `source` has an error, returns
  // kInvalidArgument with the compiler's messages. The function is thread-safe and takes a few hundred milliseconds.
  Result<std::string> compile(const std::string& source, std::string_view name, int compute_capability) const;

 private:
  struct Functions;
  explicit Nvrtc(const Functions& functions) : functions_(&functions) {}
  const Functions* functions_;
};

}  // namespace tessera
