// NVRTC, CUDA's compiler as a library. It is loaded when it is first needed, from the toolkit or from NVIDIA's Python
// wheel. The build does not need CUDA for this.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

class Nvrtc {
 public:
  // Loads the library once for the process: from the place that the system's loader finds, from CUDA's usual folder, or
  // from the packages of a Python in /usr/local/lib or /usr/lib. It stays loaded. kNotFound lists the places that were
  // tried.
  static Result<const Nvrtc*> load();

  std::string version() const;  // "13.0"
  // Compiles `source` to machine code for a compute capability of 10 · major + minor. kInvalidArgument with the
  // compiler's messages if the source does not compile. Thread-safe; takes some hundred milliseconds.
  Result<std::string> compile(const std::string& source, std::string_view name, int compute_capability) const;

 private:
  struct Functions;
  explicit Nvrtc(const Functions& functions) : functions_(&functions) {}
  const Functions* functions_;
};

}  // namespace tessera
