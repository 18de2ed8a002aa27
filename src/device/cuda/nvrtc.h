// NVRTC, CUDA's compiler as a library, found when it is first needed: the toolkit's or the one of NVIDIA's Python
// wheel. No part of CUDA is needed to build this.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

class Nvrtc {
 public:
  // Loads the library once for the process: where the system's loader finds it, from CUDA's usual folder, or from the
  // packages of a Python in /usr/local/lib or /usr/lib. kNotFound names what was looked for. It stays loaded.
  static Result<const Nvrtc*> load();

  std::string version() const;  // "13.0"
  // Machine code of `source` for a compute capability of 10 · major + minor. kInvalidArgument with the compiler's
  // messages for source that does not compile. Thread-safe; takes some hundred milliseconds.
  Result<std::string> compile(const std::string& source, std::string_view name, int compute_capability) const;

 private:
  struct Functions;
  explicit Nvrtc(const Functions& functions) : functions_(&functions) {}
  const Functions* functions_;
};

}  // namespace tessera
