// A piecewise backend turns a part of a forward into one launch. A device type may have its own backend. The default
// backend records the launches on the device's stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/device/device.h"

namespace tessera {

class PiecewiseBackend {
 public:
  virtual ~PiecewiseBackend() = default;
  // Makes a graph whose launch does the work of program.enqueue(stream). Capturing does not run the kernels. The
  // program must outlive the graph. `what` names the part and the bucket in errors. After an error the stream no longer
  // records.
  virtual Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                         const std::string& what) const = 0;
  // Makes one graph whose launch runs the programs one after another. Together the programs are a whole forward with
  // its split operators. The arguments and errors are those of capture(). Returns kUnimplemented if the backend cannot
  // make such graphs. In this case the forward runs part by part.
  virtual Result<std::unique_ptr<RecordedGraph>> capture_all(std::span<const BoundProgram> programs, Stream& stream,
                                                             const std::string& what) const;
  // Returns a remark for `tessera explain`, such as "pieces run operator by operator: …", or "" if there is none.
  virtual std::string note() const { return {}; }
};

// Returns the default backend, which records a program's launches on a stream.
const PiecewiseBackend& recording_backend();

// Holds the backends by device type. One thread adds them before any thread reads them. After that the list is
// immutable.
class PiecewiseBackends {
 public:
  // Returns kInvalidArgument if the type already has a backend.
  Status add(std::string device_type, std::shared_ptr<const PiecewiseBackend> backend);
  // Returns the backend of the device type, or recording_backend() if the type has none.
  const PiecewiseBackend& of(std::string_view device_type) const;

 private:
  std::map<std::string, std::shared_ptr<const PiecewiseBackend>, std::less<>> backends_;
};

}  // namespace tessera
