// How a part of a forward becomes one launch. A device may bring its own way beside the recording of its stream.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/device/device.h"

namespace tessera {

class PiecewiseBackend {
 public:
  virtual ~PiecewiseBackend() = default;
  // A graph whose launch does what program.enqueue(stream) does. Nothing runs meanwhile. The graph does not outlive the
  // program. `what` names part and bucket in errors. After an error the stream does not record.
  virtual Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                         const std::string& what) const = 0;
};

// Records the program's launches on the stream.
const PiecewiseBackend& recording_backend();

}  // namespace tessera
